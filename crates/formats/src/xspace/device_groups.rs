//! The device groups of an XLA instruction, in their three notations: listed, as a transposed
//! count, or along the axes of a mesh.
//!
//! It does not guess: an unknown field could mean anything and makes the groups unknown.

use crate::protobuf::{Fault, Fields, Value};

/// Groups as an instruction states them.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Groups {
    /// `None`: all there are.
    #[default]
    Unstated,
    /// By the numbers that the [`Mode`] of the operation counts.
    Listed(Vec<Vec<u64>>),
    /// In an unsupported way.
    Odd,
}

impl Groups {
    pub(super) fn push(&mut self, group: Vec<u64>) {
        match self {
            Self::Unstated => *self = Self::Listed(vec![group]),
            // More groups than there can be devices.
            Self::Listed(groups) if groups.len() >= DEVICES_MAX => *self = Self::Odd,
            Self::Listed(groups) => groups.push(group),
            Self::Odd => {}
        }
    }

    /// Heap memory in addition to its own size.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Listed(groups) => groups.iter().map(|group| size_of::<Vec<u64>>() + group.len() * 8).sum(),
            Self::Unstated | Self::Odd => 0,
        }
    }
}

/// The numbers of field 1, packed or not; `None` if there are more than devices can exist.
pub(super) fn replica_group(bytes: &[u8]) -> Result<Option<Vec<u64>>, Fault> {
    let mut numbers = Vec::new();
    for field in Fields::of(bytes) {
        let field = field?;
        if field.number == 1 && !put_numbers(&field.value, &mut numbers) {
            return Ok(None);
        }
    }
    Ok(Some(numbers))
}

/// Appends the numbers of a repeated field; returns false if they are too many or truncated.
fn put_numbers(value: &Value<'_>, numbers: &mut Vec<u64>) -> bool {
    match *value {
        Value::Number(number) => numbers.push(number),
        Value::Bytes(mut packed) => {
            while !packed.is_empty() {
                let Some((number, width)) = crate::protobuf::varint(packed) else { return false };
                numbers.push(number);
                packed = &packed[width..];
                if numbers.len() > DEVICES_MAX {
                    return false;
                }
            }
        }
        Value::Fixed(_) => return false,
    }
    numbers.len() <= DEVICES_MAX
}

/// `collective_device_list`.
pub(super) fn device_list(bytes: &[u8]) -> Result<Option<Groups>, Fault> {
    let mut groups = Groups::Unstated;
    for field in Fields::of(bytes) {
        let field = field?;
        match (field.number, field.value) {
            (1, Value::Bytes(inner)) => match replica_group(inner)? {
                Some(group) => groups.push(group),
                None => return Ok(None),
            },
            (2, Value::Bytes(inner)) => return Ok(iota(inner)?.map(Groups::Listed)),
            _ => return Ok(None),
        }
    }
    Ok(Some(groups))
}

/// `[groups, devices]<=[reshape_dims]T(transpose_perm)`: the numbers from 0, arranged by the
/// dimensions, transposed, cut into groups.
fn iota(bytes: &[u8]) -> Result<Option<Vec<Vec<u64>>>, Fault> {
    let (mut count, mut size) = (0, 0);
    let (mut dims, mut permutation) = (Vec::new(), Vec::new());
    for field in Fields::of(bytes) {
        let field = field?;
        let understood = match (field.number, &field.value) {
            (1, Value::Number(value)) => {
                count = *value;
                true
            }
            (2, Value::Number(value)) => {
                size = *value;
                true
            }
            (3, value) => put_numbers(value, &mut dims),
            (4, value) => put_numbers(value, &mut permutation),
            _ => false,
        };
        if !understood {
            return Ok(None);
        }
    }
    if permutation.is_empty() {
        permutation = (0..dims.len() as u64).collect();
    }
    Ok(transposed(&dims, &permutation).and_then(|numbers| cut(&numbers, count, size)))
}

/// The numbers from 0, laid out row by row by `dims`, read with the dimensions in another order.
fn transposed(dims: &[u64], permutation: &[u64]) -> Option<Vec<u64>> {
    let mut sorted = permutation.to_vec();
    sorted.sort_unstable();
    let all_once = sorted.iter().copied().eq(0..dims.len() as u64);
    let total = dims.iter().try_fold(1u64, |product, size| product.checked_mul(*size))?;
    if !all_once || dims.is_empty() || dims.len() > DIMENSIONS_MAX || total == 0 || total > DEVICES_MAX as u64 {
        return None;
    }
    let stride = |axis: usize| dims[axis + 1..].iter().product::<u64>();
    let axes: Vec<(u64, u64)> = permutation.iter().map(|&axis| (dims[axis as usize], stride(axis as usize))).collect();
    let number = |place: u64| {
        let mut left = place;
        axes.iter().rev().fold(0, |number, (size, stride)| {
            let digit = left % size;
            left /= size;
            number + digit * stride
        })
    };
    Some((0..total).map(number).collect())
}

/// Groups of one size.
fn cut(numbers: &[u64], count: u64, size: u64) -> Option<Vec<Vec<u64>>> {
    let fits = size > 0 && count.checked_mul(size) == Some(numbers.len() as u64);
    fits.then(|| numbers.chunks(size as usize).map(<[u64]>::to_vec).collect())
}

/// Groups along axes of a mesh whose devices are numbered row by row; parts of axes and other
/// numberings are not supported.
pub(super) fn mesh_list(bytes: &[u8]) -> Result<Option<Groups>, Fault> {
    let (mut dims, mut along) = (Vec::new(), Vec::new());
    for field in Fields::of(bytes) {
        let field = field?;
        let (1 | 2, Value::Bytes(inner)) = (field.number, field.value) else { return Ok(None) };
        for field_of in Fields::of(inner) {
            let field_of = field_of?;
            match (field.number, field_of.number, field_of.value) {
                (1, 1, Value::Bytes(axis)) => dims.push(axis_size(axis)?),
                (2, 1, _) => {}
                _ => return Ok(None),
            }
        }
        if field.number == 2 {
            along.push(axis_index(inner)?);
        }
    }
    let across: Vec<u64> = (0..dims.len() as u64).filter(|axis| !along.contains(axis)).collect();
    let size = along.iter().try_fold(1u64, |product, &axis| product.checked_mul(*dims.get(axis as usize)?));
    let permutation = [across, along].concat();
    let Some((numbers, size)) = transposed(&dims, &permutation).zip(size) else { return Ok(None) };
    let count = numbers.len() as u64 / size.max(1);
    Ok(cut(&numbers, count, size).map(Groups::Listed))
}

/// The size of a mesh's axis; its name is of no interest.
fn axis_size(bytes: &[u8]) -> Result<u64, Fault> {
    let mut size = 0;
    for field in Fields::of(bytes) {
        if let (2, Value::Number(value)) = field.map(|field| (field.number, field.value))? {
            size = value;
        }
    }
    Ok(size)
}

/// Index of the axis; zero is not written.
fn axis_index(bytes: &[u8]) -> Result<u64, Fault> {
    let mut index = 0;
    for field in Fields::of(bytes) {
        if let (1, Value::Number(value)) = field.map(|field| (field.number, field.value))? {
            index = value;
        }
    }
    Ok(index)
}

/// Devices of a job at most.
pub(super) const DEVICES_MAX: usize = 1 << 20;
/// Dimensions of a mesh at most.
const DIMENSIONS_MAX: usize = 32;

/// Fields of messages, by hand.
#[cfg(test)]
pub(super) mod testing {
    use crate::protobuf::{put_bytes, put_number, put_varint};

    pub(in crate::xspace) fn packed(field: u32, numbers: &[u64]) -> Vec<u8> {
        let mut inner = Vec::new();
        numbers.iter().for_each(|&number| put_varint(&mut inner, number));
        message(field, &inner)
    }

    pub(in crate::xspace) fn message(field: u32, inner: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, field, inner);
        out
    }

    pub(in crate::xspace) fn number(field: u32, value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, field, value);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{message, number, packed};
    use super::*;

    #[test]
    fn iota_lists_are_laid_out_as_xla_does() {
        let check = |count: u64, size: u64, dims: &[u64], permutation: &[u64], expected: Option<&[&[u64]]>| {
            let bytes = [number(1, count), number(2, size), packed(3, dims), packed(4, permutation)].concat();
            let expected = expected.map(|groups| groups.iter().map(|group| group.to_vec()).collect::<Vec<_>>());
            assert_eq!(iota(&bytes).expect("a message"), expected, "[{count},{size}]<=[{dims:?}]T({permutation:?})");
        };
        check(2, 2, &[4], &[], Some(&[&[0, 1], &[2, 3]]));
        check(2, 2, &[2, 2], &[1, 0], Some(&[&[0, 2], &[1, 3]]));
        check(2, 4, &[2, 2, 2], &[1, 0, 2], Some(&[&[0, 1, 4, 5], &[2, 3, 6, 7]]));
        check(2, 3, &[3, 2], &[1, 0], Some(&[&[0, 2, 4], &[1, 3, 5]]));
        check(2, 3, &[4], &[], None);
        check(2, 2, &[4], &[1], None);
        check(2, 2, &[2, 2], &[0, 0], None);
        check(1, 0, &[0], &[], None);
        check(1 << 40, 1 << 40, &[1 << 40, 1 << 40], &[], None);
        let unknown = [number(1, 2), number(2, 2), packed(3, &[4]), number(9, 1)].concat();
        assert_eq!(iota(&unknown).expect("a message"), None, "a field that is not known may mean anything");
    }

    #[test]
    fn axes_of_a_mesh_make_groups() {
        let axis = |name: &str, size: u64| message(1, &[message(1, name.as_bytes()), number(2, size)].concat());
        let mesh = |sizes: &[u64]| message(1, &sizes.iter().flat_map(|size| axis("a", *size)).collect::<Vec<u8>>());
        let along = |index: u64| message(2, &if index == 0 { Vec::new() } else { number(1, index) });
        let check = |bytes: Vec<u8>, expected: Option<&[&[u64]]>| {
            let expected = expected.map(|groups| Groups::Listed(groups.iter().map(|group| group.to_vec()).collect()));
            assert_eq!(mesh_list(&bytes).expect("a message"), expected);
        };
        check([mesh(&[2]), along(0)].concat(), Some(&[&[0, 1]]));
        check([mesh(&[2, 2]), along(1)].concat(), Some(&[&[0, 1], &[2, 3]]));
        check([mesh(&[2, 2]), along(0)].concat(), Some(&[&[0, 2], &[1, 3]]));
        check([mesh(&[2, 2]), along(0), along(1)].concat(), Some(&[&[0, 1, 2, 3]]));
        check([mesh(&[2, 2]), along(2)].concat(), None);
        check([mesh(&[2, 2]), message(2, &message(2, &number(1, 1)))].concat(), None);
        check(number(1, 3), None);
    }
}
