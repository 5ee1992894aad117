//! Floating-point operation counts of operators, computed from their names and input shapes.
//!
//! An operator states `shapes`, a JSON list of the dimensions of each tensor. A convolution also
//! states `groups` and the lists `stride`, `padding` and `dilation`, with one number per dimension
//! (1, 0 and 1 by default). A multiplication and an addition count as two operations.
//!
//! | operator | operations |
//! |---|---|
//! | mm, matmul, bmm: `[…, m, k] [k, n]` | 2 m k n for each of the batch |
//! | addmm, baddbmm: `bias [m, k] [k, n]` | the same: the bias is not counted, as PyTorch does |
//! | linear: `[…, k] [n, k]` | 2 k n for each row |
//! | conv1d, conv2d, conv3d, convolution: `[b, c, …] [o, c / groups, …]` | 2 × outputs × c / groups × size of the kernel |
//! | add, mul | one for each element of the larger |
//!
//! Unknown operators get no count.

use serde::Deserialize;

use super::{Additions, Hook};
use crate::read::What;
use crate::tree::Item;
use crate::typed::keys;
use crate::value::ArgumentValue;

/// Adds the argument `flops`.
#[derive(Copy, Clone, Debug, Default)]
pub struct Flops;

impl Hook for Flops {
    fn name(&self) -> &str {
        "flops"
    }

    fn event(&mut self, item: &Item<'_>, additions: &mut Additions) {
        if !matches!(item.what(), What::Scope { .. }) {
            return;
        }
        if let Some(flops) = flops(item.name(), &|key| item.argument(key)) {
            additions.push(("flops".into(), ArgumentValue::Unsigned(flops)));
        }
    }
}

/// Returns the number of operations; `None` if unknown or out of range.
fn flops(name: &str, arguments: &Find<'_>) -> Option<u64> {
    let operator = name.rsplit("::").next().unwrap_or(name).trim_end_matches('_');
    let shapes: Vec<Vec<u64>> = json(arguments, keys::SHAPES)?;
    let shape = |at: usize| shapes.get(at).map(Vec::as_slice);
    match operator {
        "mm" | "matmul" | "bmm" => product_of(shape(0)?, shape(1)?),
        "addmm" | "baddbmm" => product_of(shape(1)?, shape(2)?),
        "linear" => {
            let ([rows @ .., k], [n, other]) = (shape(0)?, shape(1)?) else { return None };
            (k == other).then(|| product(&[&[2, *k, *n], rows]))?
        }
        "conv1d" | "conv2d" | "conv3d" | "convolution" | "conv_transpose1d" if !operator.contains("transpose") => {
            convolution(arguments, shape(0)?, shape(1)?)
        }
        "add" | "mul" => shapes.iter().map(|shape| product(&[shape])).max()?,
        _ => None,
    }
}

fn product_of(a: &[u64], b: &[u64]) -> Option<u64> {
    let ([batch @ .., m, k], [of_b @ .., other, n]) = (a, b) else { return None };
    let batches = [product(&[batch])?, product(&[of_b])?];
    (k == other).then(|| product(&[&[2, *m, *k, *n], &[batches[0].max(batches[1])]]))?
}

fn convolution(arguments: &Find<'_>, input: &[u64], weight: &[u64]) -> Option<u64> {
    let ([batch, _, sizes @ ..], [out, channels, kernel @ ..]) = (input, weight) else { return None };
    let list =
        |key: &str, otherwise: u64| json::<Vec<u64>>(arguments, key).unwrap_or_else(|| vec![otherwise; sizes.len()]);
    let (stride, padding, dilation) = (list("stride", 1), list("padding", 0), list("dilation", 1));
    let lengths = [kernel.len(), stride.len(), padding.len(), dilation.len()];
    if lengths.iter().any(|length| *length != sizes.len()) || sizes.is_empty() {
        return None;
    }
    let mut outputs = vec![*batch, *out];
    for at in 0..sizes.len() {
        let reach = dilation[at].checked_mul(kernel[at].checked_sub(1)?)?.checked_add(1)?;
        let padded = padding[at].checked_mul(2)?.checked_add(sizes[at])?;
        outputs.push(padded.checked_sub(reach)?.checked_div(stride[at])? + 1);
    }
    product(&[&[2, *channels], &outputs, kernel])
}

fn product(lists: &[&[u64]]) -> Option<u64> {
    lists.iter().copied().flatten().try_fold(1_u64, |product, number| product.checked_mul(*number))
}

fn json<T: for<'a> Deserialize<'a>>(arguments: &Find<'_>, key: &str) -> Option<T> {
    match arguments(key)? {
        ArgumentValue::Json(text) | ArgumentValue::Text(text) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}

/// Finds the argument with a key.
type Find<'a> = dyn Fn(&str) -> Option<ArgumentValue> + 'a;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, arguments: &[(&str, &str)], expected: Option<u64>) {
        let find = |key: &str| {
            let found = arguments.iter().find(|(own, _)| *own == key);
            found.map(|(_, value)| ArgumentValue::Json((*value).to_owned()))
        };
        assert_eq!(flops(name, &find), expected, "{name} {arguments:?}");
    }

    #[test]
    fn operators_are_counted_by_their_shapes() {
        let shapes = |shapes| [("shapes", shapes)];
        check("aten::mm", &shapes("[[2,3],[3,4]]"), Some(48));
        check("aten::bmm", &shapes("[[5,2,3],[5,3,4]]"), Some(240));
        check("matmul", &shapes("[[5,2,3],[3,4]]"), Some(240));
        check("aten::addmm", &shapes("[[4],[2,3],[3,4]]"), Some(48));
        check("linear", &shapes("[[7,2,3],[4,3]]"), Some(2 * 3 * 4 * 14));
        check("aten::add_", &shapes("[[8,4],[4]]"), Some(32));
        check("aten::conv2d", &shapes("[[1,3,8,8],[16,3,3,3]]"), Some(2 * 16 * 36 * 27));
        let conv = [("shapes", "[[2,4,9],[8,2,3]]"), ("stride", "[2]"), ("padding", "[1]"), ("groups", "2")];
        check("aten::conv1d", &conv, Some(2 * 2 * 8 * 5 * 2 * 3));
    }

    #[test]
    fn what_is_not_known_or_cannot_be_gets_nothing() {
        for (name, shapes) in [
            ("aten::relu", "[[2,3]]"),
            ("aten::mm", "[[2,3],[4,4]]"),
            ("aten::mm", "[[2,3]]"),
            ("aten::mm", "[2,3"),
            ("aten::mm", "[[18446744073709551615,3],[3,4]]"),
            ("aten::conv2d", "[[1,3,2,2],[16,3,3,3]]"),
            ("aten::add", "[]"),
        ] {
            check(name, &[("shapes", shapes)], None);
        }
        check("aten::mm", &[], None);
        check("aten::conv1d", &[("shapes", "[[2,4,9],[8,2,3]]"), ("stride", "[0]")], None);
    }
}
