//! Line charts as SVG text. Colours come from the page's style, so that they follow its light and dark.

use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 38.0;

/// One line.
pub(crate) struct Line {
    /// Its name in the legend.
    pub(crate) name: String,
    /// Its class in the style, `a` or `b`.
    pub(crate) class: &'static str,
    /// Its points in the units of the axes.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A limit that stands across the chart.
pub(crate) struct Limit {
    /// What it is.
    pub(crate) name: String,
    /// Where, in the units of the vertical axis.
    pub(crate) at: f64,
}

/// A mark at an axis: where and what.
pub(crate) type Mark = (f64, String);

/// How the vertical axis goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From nothing.
    Linear,
    /// By powers of ten.
    Logarithmic,
}

/// A chart.
pub(crate) struct Chart {
    /// What it shows, for those who cannot see it.
    pub(crate) title: String,
    /// What the horizontal axis counts.
    pub(crate) horizontal: String,
    /// The ends of the horizontal axis.
    pub(crate) range: (f64, f64),
    /// Its marks.
    pub(crate) marks: Vec<Mark>,
    /// The vertical axis.
    pub(crate) scale: Scale,
    /// The lines.
    pub(crate) lines: Vec<Line>,
    /// The limits.
    pub(crate) limits: Vec<Limit>,
}

/// A vertical axis: values to heights.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    fn of(chart: &Chart) -> Self {
        let values: Vec<f64> = chart
            .lines
            .iter()
            .flat_map(|line| line.points.iter().map(|(_, value)| *value))
            .filter(|value| *value > 0.0)
            .collect();
        let top = values.iter().copied().fold(0.0, f64::max);
        match chart.scale {
            // A limit far above the lines would press them to the ground; it is named at the upper edge instead.
            Scale::Linear => {
                let near = chart.limits.iter().map(|limit| limit.at);
                let high = near.filter(|at| *at <= top * 3.0).fold(top, f64::max);
                Self {
                    scale: chart.scale,
                    low: 0.0,
                    high: if high > 0.0 { high * 1.08 } else { 1.0 },
                }
            }
            Scale::Logarithmic => {
                let all = || {
                    let limits = chart.limits.iter().map(|limit| limit.at);
                    values.iter().copied().chain(limits).filter(|value| *value > 0.0)
                };
                let low = all().fold(f64::INFINITY, f64::min);
                let low = if low.is_finite() { low } else { 0.1 };
                let high = all().fold(low, f64::max);
                Self {
                    scale: chart.scale,
                    low: 10_f64.powf(low.log10().floor()),
                    high: 10_f64.powf((high * 1.01).log10().ceil()),
                }
            }
        }
    }

    fn height(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => value / self.high,
            Scale::Logarithmic => {
                let decades = (self.high / self.low).log10().max(1.0);
                (value.max(self.low) / self.low).log10() / decades
            }
        };
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    }

    fn marks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = round_step(self.high / 4.0);
                (0..=8)
                    .map(|index| f64::from(index) * step)
                    .filter(|value| *value <= self.high)
                    .collect()
            }
            Scale::Logarithmic => {
                let mut marks = Vec::new();
                let mut value = self.low;
                while value <= self.high * 1.001 {
                    marks.push(value);
                    value *= 10.0;
                }
                marks
            }
        }
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(raw: f64) -> f64 {
    let power = 10_f64.powf(raw.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= raw)
        .unwrap_or(power * 10.0)
}

/// A number as short as it can be read.
#[must_use]
pub(crate) fn short(value: f64) -> String {
    let (text, unit) = match value.abs() {
        size if size >= 10_000_000.0 => return format!("{:.0}M", value / 1_000_000.0),
        size if size >= 1_000_000.0 => (format!("{:.1}", value / 1_000_000.0), "M"),
        size if size >= 10_000.0 => return format!("{:.0}k", value / 1_000.0),
        size if size >= 1_000.0 => (format!("{:.1}", value / 1_000.0), "k"),
        size if size >= 10.0 => return format!("{value:.0}"),
        size if size >= 1.0 => (format!("{value:.1}"), ""),
        _ => (format!("{value:.3}"), ""),
    };
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Text that is safe inside of markup.
#[must_use]
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

impl Chart {
    /// The chart as an SVG element with its legend before it.
    #[must_use]
    pub(crate) fn svg(&self) -> String {
        let axis = Axis::of(self);
        let mut out = self.legend();
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escaped(&self.title)
        );
        self.grid(&axis, &mut out);
        self.limit_lines(&axis, &mut out);
        for line in &self.lines {
            let points: Vec<String> = line
                .points
                .iter()
                .map(|(at, value)| format!("{:.1},{:.1}", self.across(*at), axis.height(*value)))
                .collect();
            let _ = write!(
                out,
                "<polyline class=\"line {}\" points=\"{}\"/>",
                line.class,
                points.join(" ")
            );
        }
        out + "</svg>"
    }

    fn across(&self, at: f64) -> f64 {
        let (low, high) = self.range;
        let share = (at - low) / (high - low).max(f64::MIN_POSITIVE);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn legend(&self) -> String {
        let mut out = String::from("<p class=\"legend\">");
        for line in &self.lines {
            let _ = write!(
                out,
                "<span><i class=\"{}\"></i>{}</span>",
                line.class,
                escaped(&line.name)
            );
        }
        if !self.limits.is_empty() {
            out.push_str("<span><i class=\"floor\"></i>limit of the machine</span>");
        }
        out + "</p>"
    }

    fn grid(&self, axis: &Axis, out: &mut String) {
        let (left, right, ground) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in axis.marks() {
            let height = axis.height(value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{height:.1}\" y2=\"{height:.1}\"/>\
                 <text class=\"mark\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                height + 4.0,
                short(value)
            );
        }
        for (at, name) in &self.marks {
            let _ = write!(
                out,
                "<text class=\"mark\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                self.across(*at),
                ground + 16.0,
                escaped(name)
            );
        }
        let _ = write!(
            out,
            "<text class=\"mark\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            HEIGHT - 6.0,
            escaped(&self.horizontal)
        );
    }

    fn limit_lines(&self, axis: &Axis, out: &mut String) {
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let mut above = 0.0;
        for limit in &self.limits {
            let name = escaped(&limit.name);
            if limit.at > axis.high {
                let _ = write!(
                    out,
                    "<text class=\"limit\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">\u{2191} {name}</text>",
                    right,
                    TOP - 6.0 + above
                );
                above += 14.0;
                continue;
            }
            let height = axis.height(limit.at);
            let _ = write!(
                out,
                "<line class=\"limit\" x1=\"{left}\" x2=\"{right}\" y1=\"{height:.1}\" y2=\"{height:.1}\"/>\
                 <text class=\"limit\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                height - 4.0
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, limits: Vec<Limit>) -> Chart {
        Chart {
            title: "a & b".to_owned(),
            horizontal: "seconds".to_owned(),
            range: (0.0, 2.0),
            marks: vec![(0.0, "0".to_owned())],
            scale,
            lines: vec![Line {
                name: "<line>".to_owned(),
                class: "a",
                points: vec![(0.0, 10.0), (2.0, 1_000.0)],
            }],
            limits,
        }
    }

    fn limit(at: f64) -> Vec<Limit> {
        vec![Limit {
            name: "disk".to_owned(),
            at,
        }]
    }

    #[test]
    fn points_stand_where_their_values_are() {
        let text = chart(Scale::Logarithmic, Vec::new()).svg();
        // 10 is the lowest decade, so it stands on the ground.
        assert!(text.contains("points=\"64.0,262.0 844.0,"), "{text}");
        assert!(text.contains("aria-label=\"a &amp; b\"") && text.contains("&lt;line&gt;"));
    }

    #[test]
    fn a_limit_far_above_is_named_at_the_edge() {
        let near = chart(Scale::Linear, limit(2_000.0)).svg();
        assert!(near.contains("<line class=\"limit\"") && !near.contains('\u{2191}'));
        let far = chart(Scale::Linear, limit(50_000.0)).svg();
        assert!(!far.contains("<line class=\"limit\"") && far.contains("\u{2191} disk"));
        let logarithmic = chart(Scale::Logarithmic, limit(50_000.0)).svg();
        assert!(logarithmic.contains("<line class=\"limit\""));
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.25, "0.25"),
            (2.5, "2.5"),
            (10.0, "10"),
            (2_500.0, "2.5k"),
            (4_000.0, "4k"),
            (245_000.0, "245k"),
            (1_200_000.0, "1.2M"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert!((round_step(1_900.0) - 2_000.0).abs() < 1e-6);
        assert!((round_step(51.0) - 100.0).abs() < 1e-6);
    }

    #[test]
    fn an_empty_chart_is_still_a_chart() {
        let mut empty = chart(Scale::Linear, Vec::new());
        empty.lines.clear();
        assert!(empty.svg().ends_with("</svg>"));
        empty.scale = Scale::Logarithmic;
        assert!(empty.svg().ends_with("</svg>"));
    }
}
