//! What charts share: an axis of time, and the frame of a figure.
//!
//! Horizontal positions are percents of the width, so that text keeps its size on any screen.

use crate::html::writer::escape;

/// A stretch in which nothing happened counts at most as this part of the time in which something did.
const LONGEST_GAP: f64 = 0.04;

/// Maps times to percents of a width. Long gaps, such as the nights between two starts of a run, are shortened.
#[derive(Debug)]
pub(crate) struct TimeAxis {
    /// Begin and end in milliseconds, and the width in percent.
    stretches: Vec<(i64, i64, f64)>,
}

impl TimeAxis {
    /// An axis for these spans of milliseconds; `None` without any.
    pub(crate) fn of(spans: impl Iterator<Item = (i64, i64)>) -> Option<TimeAxis> {
        let mut spans: Vec<(i64, i64)> = spans.filter(|(begin, end)| begin <= end).collect();
        spans.sort_unstable();
        let mut busy: Vec<(i64, i64)> = Vec::new();
        for (begin, end) in spans {
            match busy.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => busy.push((begin, end)),
            }
        }
        let worked: i64 = busy.iter().map(|(begin, end)| end - begin).sum();
        let longest = (worked as f64 * LONGEST_GAP).max(1.0);
        let mut stretches: Vec<(i64, i64, f64)> = Vec::new();
        for (begin, end) in busy {
            if let Some(&(_, before, _)) = stretches.last() {
                stretches.push((before, begin, ((begin - before) as f64).min(longest)));
            }
            stretches.push((begin, end, (end - begin) as f64));
        }
        let whole: f64 = stretches.iter().map(|stretch| stretch.2).sum();
        let scale = 100.0 / whole.max(1.0);
        stretches.iter_mut().for_each(|stretch| stretch.2 *= scale);
        (!stretches.is_empty()).then_some(TimeAxis { stretches })
    }

    /// Where a time is, from 0 to 100.
    pub(crate) fn percent(&self, time: i64) -> f64 {
        let mut position = 0.0;
        for (begin, end, width) in &self.stretches {
            if time < *end {
                let part = (time - begin).max(0) as f64 / (end - begin) as f64;
                return position + part * width;
            }
            position += width;
        }
        position.min(100.0)
    }
}

/// A chart, with `label` for screen readers; `caption` is markup.
pub(crate) fn figure(label: &str, height: u32, body: &str, caption: &str) -> String {
    let label = escape(label);
    format!(
        "<figure><svg role=\"img\" width=\"100%\" height=\"{height}\" aria-label=\"{label}\">{body}</svg>\n\
         <figcaption>{caption}</figcaption></figure>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(spans: &[(i64, i64)], times: &[i64]) -> Vec<f64> {
        let axis = TimeAxis::of(spans.iter().copied()).unwrap();
        let rounded = times.iter().map(|time| axis.percent(*time).round());
        rounded.collect()
    }

    #[test]
    fn a_time_is_at_its_place() {
        assert_eq!(
            positions(&[(1000, 2000)], &[0, 1000, 1500, 2000, 9000]),
            [0.0, 0.0, 50.0, 100.0, 100.0]
        );
        assert_eq!(
            positions(&[(0, 60), (30, 80), (80, 100)], &[30, 80]),
            [30.0, 80.0]
        );
    }

    #[test]
    fn a_long_gap_is_shortened_and_a_short_one_is_not() {
        let day = 24 * 3600 * 1000;
        let spans = [(0, 1000), (day, day + 1000)];
        assert_eq!(
            positions(&spans, &[1000, day, day + 1000]),
            [48.0, 52.0, 100.0]
        );
        assert_eq!(positions(&[(0, 50), (51, 101)], &[50, 51]), [50.0, 50.0]);
    }

    #[test]
    fn spans_without_length_have_an_axis() {
        assert!(TimeAxis::of([].into_iter()).is_none());
        assert_eq!(positions(&[(5, 5)], &[5]), [0.0]);
        assert_eq!(positions(&[(5, 5), (7, 7)], &[5, 7]).len(), 2);
    }
}
