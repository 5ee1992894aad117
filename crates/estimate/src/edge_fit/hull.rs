//! The gap between forward and reverse points as a function of a line's slope.
//!
//! A line a + b·x of fixed slope b fits under the forward points if a ≤ V_F(b) = min (u − b·x), and
//! over the reverse points if a ≥ −V_R(b), V_R(b) = min (−l + b·x), which is the same expression on
//! the mirrored points (−x, −l). V_F and V_R are concave and piecewise linear, and only the
//! vertices of the lower hull matter; the breaks are the slopes of its edges. Twice the margin of
//! the best line of slope b is g(b) = V_F(b) + V_R(b), which is concave too. The following results
//! are exact and take linear time after sorting:
//! - the largest margin is where g's derivative, −x_F(b) − x_R(b), changes sign (x_F, x_R: the
//!   touched vertices); this is the linear-programming dual of the smallest vertical distance
//!   between the two hulls;
//! - the feasible slopes are the interval where g ≥ 0;
//! - the largest feasible a is the peak of V_F with b held inside that interval, the smallest a
//!   that of V_R.
//!
//! A walk over x instead of b would need special cases when the hulls do not overlap in x, or for
//! one point; with the slope limited to ±B every case is the same.

/// A point (x, y) in ns; reverse points are mirrored, as (−x, −l).
pub(super) type Point = (f64, f64);

/// V(b) = min over points of y − b·x.
pub(super) struct Envelope {
    /// Vertices of the lower hull, x ascending.
    vertices: Vec<Point>,
    /// Slopes between neighbouring vertices, ascending.
    breaks: Vec<f64>,
}

impl Envelope {
    /// Creates the envelope of the points; `None` if there are none.
    pub(super) fn new(points: impl Iterator<Item = Point>) -> Option<Self> {
        let mut sorted: Vec<Point> = points.collect();
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut vertices: Vec<Point> = Vec::new();
        for point in sorted {
            if vertices.last().is_some_and(|last| last.0 == point.0) {
                continue;
            }
            while let [.., a, b] = vertices[..] {
                if slope(a, b) < slope(b, point) {
                    break;
                }
                vertices.pop();
            }
            vertices.push(point);
        }
        let breaks = vertices.windows(2).map(|pair| slope(pair[0], pair[1])).collect();
        (!vertices.is_empty()).then_some(Self { vertices, breaks })
    }

    /// Returns V(b).
    pub(super) fn at(&self, b: f64) -> f64 {
        let (x, y) = self.vertices[self.touched(b)];
        y - b * x
    }

    /// Returns the slope at which V peaks, clamped to `limits`.
    pub(super) fn peak(&self, limits: [f64; 2]) -> f64 {
        let unlimited = match self.vertices.iter().position(|vertex| vertex.0 >= 0.0) {
            Some(0) => f64::NEG_INFINITY,
            Some(k) => self.breaks[k - 1],
            None => f64::INFINITY,
        };
        unlimited.clamp(limits[0], limits[1])
    }

    /// Returns the vertex that a line of slope b touches; of two, the one with the larger x.
    fn touched(&self, b: f64) -> usize {
        self.breaks.partition_point(|&at| at <= b)
    }

    /// Returns the derivative of V just right of b.
    fn rise(&self, b: f64) -> f64 {
        -self.vertices[self.touched(b)].0
    }
}

/// Forward envelope and mirrored reverse envelope.
pub(super) struct Gap {
    pub(super) forward: Envelope,
    pub(super) reverse: Envelope,
}

/// Position of the largest margin.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Best {
    /// The slope.
    pub(super) slope: f64,
    /// False if only the limit on the slope, and no packet, ended the search.
    pub(super) bounded: bool,
}

impl Gap {
    /// Returns g(b), twice the margin of the best line of slope b; negative if the points overlap.
    pub(super) fn at(&self, b: f64) -> f64 {
        self.forward.at(b) + self.reverse.at(b)
    }

    /// Returns the intercept of the middle line of slope b.
    pub(super) fn middle(&self, b: f64) -> f64 {
        0.5 * (self.forward.at(b) - self.reverse.at(b))
    }

    /// Returns the slope of the line with the largest margin, |slope| ≤ `limit`. If the packets
    /// permit several, it is the middle of their interval; if only the limit ends the search, it is
    /// the slope nearest to zero.
    pub(super) fn best(&self, limit: f64, allowance: f64) -> Best {
        let slopes = self.slopes(limit);
        let last = slopes.len() - 1;
        let low = slopes[..last].iter().position(|&b| self.rise(b) <= 0.0).unwrap_or(last);
        let high = slopes[..last].iter().position(|&b| self.rise(b) < 0.0).unwrap_or(last);
        if low > 0 && high < last {
            return Best { slope: 0.5 * (slopes[low] + slopes[high]), bounded: true };
        }
        let free = self.feasible_slopes(limit, allowance).unwrap_or([slopes[low], slopes[high]]);
        Best { slope: 0f64.clamp(free[0], free[1]), bounded: false }
    }

    /// Returns the slopes b, |b| ≤ `limit`, with g(b) + `allowance` ≥ 0, if any.
    pub(super) fn feasible_slopes(&self, limit: f64, allowance: f64) -> Option<[f64; 2]> {
        let slopes = self.slopes(limit);
        let room = |b: f64| self.at(b) + allowance;
        let first = slopes.iter().position(|&b| room(b) >= 0.0)?;
        let last = slopes.iter().rposition(|&b| room(b) >= 0.0)?;
        // Between neighbouring breaks g is a straight line.
        let root = |outside: f64, inside: f64| {
            let (out, within) = (room(outside), room(inside));
            inside + (outside - inside) * within / (within - out)
        };
        let low = if first == 0 { slopes[0] } else { root(slopes[first - 1], slopes[first]) };
        let high = if last + 1 == slopes.len() { slopes[last] } else { root(slopes[last + 1], slopes[last]) };
        Some([low, high])
    }

    /// Returns the smallest and largest feasible intercept, and the feasible slopes; `None` if no
    /// line is feasible.
    pub(super) fn bounds(&self, limit: f64, allowance: f64) -> Option<([f64; 2], [f64; 2])> {
        let slopes = self.feasible_slopes(limit, allowance)?;
        let low = -self.reverse.at(self.reverse.peak(slopes)) - 0.5 * allowance;
        let high = self.forward.at(self.forward.peak(slopes)) + 0.5 * allowance;
        Some(([low, high], slopes))
    }

    /// Returns the second moments about the line (`intercept`, `slope`) of all feasible lines, each
    /// equally likely: E(Δa²), E(Δa·Δb), E(Δb²). `None` if no line or only one is feasible.
    ///
    /// For slope b the feasible intercepts fill an interval of width w(b) = g(b) + allowance around
    /// the middle line's m(b), so with A = ∫w: A·E(Δa²) = ∫ w·(m − â)² + w³/12, A·E(Δa·Δb) = ∫ w·(m
    /// − â)·(b − b̂), A·E(Δb²) = ∫ w·(b − b̂)². Between breaks w and m are straight lines and the
    /// integrands cubic, which Simpson's rule integrates exactly.
    pub(super) fn moments(&self, limit: f64, allowance: f64, [intercept, slope]: [f64; 2]) -> Option<[f64; 3]> {
        let [low, high] = self.feasible_slopes(limit, allowance)?;
        let inner = self.slopes(limit).into_iter().filter(|b| low < *b && *b < high);
        let places: Vec<f64> = std::iter::once(low).chain(inner).chain([high]).collect();
        let integrands = |b: f64| {
            let width = (self.at(b) + allowance).max(0.0);
            let (a, b) = (self.middle(b) - intercept, b - slope);
            [width, width * (a * a + width * width / 12.0), width * a * b, width * b * b]
        };
        let mut sums = [0.0; 4];
        for piece in places.windows(2) {
            let ends = [integrands(piece[0]), integrands(piece[0].midpoint(piece[1])), integrands(piece[1])];
            for (place, sum) in sums.iter_mut().enumerate() {
                *sum += (piece[1] - piece[0]) / 6.0 * (ends[0][place] + 4.0 * ends[1][place] + ends[2][place]);
            }
        }
        let [area, aa, ab, bb] = sums;
        (area > 0.0).then(|| [aa / area, ab / area, bb / area])
    }

    /// Returns the breaks of g within the limits, ascending, including the limits themselves. A
    /// feasible interval narrower than the distance between breaks still contains one, because g,
    /// concave, peaks at a break.
    fn slopes(&self, limit: f64) -> Vec<f64> {
        let breaks = self.forward.breaks.iter().chain(&self.reverse.breaks).copied();
        let mut slopes: Vec<f64> = breaks.filter(|b| b.abs() < limit).chain([-limit, limit]).collect();
        slopes.sort_unstable_by(f64::total_cmp);
        slopes
    }

    fn rise(&self, b: f64) -> f64 {
        self.forward.rise(b) + self.reverse.rise(b)
    }
}

fn slope(a: Point, b: Point) -> f64 {
    (b.1 - a.1) / (b.0 - a.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: f64 = 0.5;

    /// A slope with the largest lower and smallest upper intercept there.
    type Candidate = (f64, (f64, f64));

    fn gap(forward: &[Point], reverse: &[Point]) -> Gap {
        Gap {
            forward: Envelope::new(forward.iter().copied()).expect("a point"),
            reverse: Envelope::new(reverse.iter().map(|p| (-p.0, -p.1))).expect("a point"),
        }
    }

    /// Returns all slopes at which some linear program over (a, b) or (a, b, m) can have a vertex.
    fn candidate_slopes(forward: &[Point], reverse: &[Point], allowance: f64) -> Vec<f64> {
        let mut slopes = vec![-LIMIT, LIMIT];
        let shifted: Vec<Point> = forward
            .iter()
            .map(|p| (p.0, p.1 + 0.5 * allowance))
            .chain(reverse.iter().map(|p| (p.0, p.1 - 0.5 * allowance)))
            .collect();
        for a in &shifted {
            slopes.extend(shifted.iter().filter(|b| b.0 != a.0).map(|b| slope(*a, *b)));
        }
        slopes.extend(pairs_within(forward).chain(pairs_within(reverse)));
        slopes.retain(|b| b.abs() <= LIMIT);
        slopes
    }

    fn pairs_within(points: &[Point]) -> impl Iterator<Item = f64> {
        points.iter().flat_map(move |a| points.iter().filter(|b| b.0 != a.0).map(|b| slope(*a, *b)))
    }

    fn margin(forward: &[Point], reverse: &[Point], b: f64) -> (f64, f64) {
        let high = forward.iter().map(|p| p.1 - b * p.0).fold(f64::INFINITY, f64::min);
        let low = reverse.iter().map(|p| p.1 - b * p.0).fold(f64::NEG_INFINITY, f64::max);
        (low, high)
    }

    fn points(count: usize, height: std::ops::Range<i32>) -> impl Strategy<Value = Vec<Point>> {
        prop::collection::vec((-40i32..40, height), 1..count)
            .prop_map(|list| list.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).collect())
    }

    proptest! {
        #[test]
        fn equals_brute_force(forward in points(9, -8..60), reverse in points(9, -60..8), allowance in 0u8..6) {
            let allowance = f64::from(allowance);
            let gap = gap(&forward, &reverse);
            let slopes = candidate_slopes(&forward, &reverse, allowance);
            let margins: Vec<_> = slopes.iter().map(|&b| (b, margin(&forward, &reverse, b))).collect();

            let largest = margins.iter().map(|(_, (low, high))| high - low).fold(f64::NEG_INFINITY, f64::max);
            // Points that touch exactly leave one line or none: which, the last bit of a slope
            // decides, here and there alike.
            prop_assume!((largest + allowance).abs() > 1e-9);
            let best = gap.best(LIMIT, allowance);
            prop_assert!(best.slope.abs() <= LIMIT);
            if best.bounded {
                prop_assert!((gap.at(best.slope) - largest).abs() < 1e-9, "{} {largest}", gap.at(best.slope));
            }
            let feasible: Vec<_> = margins.iter().filter(|(_, (low, high))| high - low + allowance >= -1e-9).collect();
            match gap.bounds(LIMIT, allowance) {
                None => prop_assert!(largest + allowance < 1e-9),
                Some(([low, high], slopes)) => {
                    let fold = |f: &dyn Fn(&Candidate) -> f64| {
                        feasible.iter().map(|c| f(c)).fold(f64::NEG_INFINITY, f64::max)
                    };
                    prop_assert!((fold(&|c| c.0) - slopes[1]).abs() < 1e-9);
                    prop_assert!((fold(&|c| -c.0) + slopes[0]).abs() < 1e-9);
                    prop_assert!((fold(&|c| c.1.1 + 0.5 * allowance) - high).abs() < 1e-9);
                    prop_assert!((fold(&|c| 0.5 * allowance - c.1.0) + low).abs() < 1e-9);
                }
            }
        }
    }

    #[test]
    fn moments_of_a_square_by_hand() {
        // Points at x = ±1, a unit above and below the line 0: |a| + |b| ≤ 1, a square on its
        // corner, whose variances are 1/6.
        let square = gap(&[(-1.0, 1.0), (1.0, 1.0)], &[(-1.0, -1.0), (1.0, -1.0)]);
        let close = |found: Option<[f64; 3]>, expected: [f64; 3]| {
            let found = found.expect("an area");
            assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?} {expected:?}");
        };
        close(square.moments(2.0, 0.0, [0.0, 0.0]), [1.0 / 6.0, 0.0, 1.0 / 6.0]);
        // About another line the distance counts too.
        close(square.moments(2.0, 0.0, [0.5, -0.25]), [1.0 / 6.0 + 0.25, -0.125, 1.0 / 6.0 + 0.0625]);
        // An allowance of 2 on g doubles the square.
        close(square.moments(4.0, 2.0, [0.0, 0.0]), [4.0 / 6.0, 0.0, 4.0 / 6.0]);
        assert_eq!(gap(&[(0.0, -5.0), (4.0, -5.0)], &[(0.0, 5.0), (4.0, 5.0)]).moments(LIMIT, 0.0, [0.0; 2]), None);
    }

    #[test]
    fn degenerate_sets_have_finite_answers() {
        // One point each way at different x: only the limit bounds the slope.
        let one = gap(&[(0.0, 10.0)], &[(4.0, -10.0)]);
        assert_eq!(one.best(LIMIT, 0.0), Best { slope: 0.0, bounded: false });
        assert_eq!(one.bounds(LIMIT, 0.0), Some(([-12.0, 10.0], [-0.5, 0.5])));
        // All at one x: the slope is free and the intercept too, as far as the limit goes.
        let same = gap(&[(2.0, 10.0), (2.0, 12.0)], &[(2.0, -10.0)]);
        assert_eq!(same.best(LIMIT, 0.0).slope, 0.0);
        assert_eq!(same.bounds(LIMIT, 0.0), Some(([-11.0, 11.0], [-0.5, 0.5])));
        // Overlapping beyond repair.
        assert_eq!(gap(&[(0.0, -5.0), (4.0, -5.0)], &[(0.0, 5.0), (4.0, 5.0)]).bounds(LIMIT, 6.0), None);
    }
}
