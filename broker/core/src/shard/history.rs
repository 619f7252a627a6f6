//! Which positions a history request means (client contract 7.4, RD-3). Pure arithmetic.

use super::peer::HistoryRange;
use crate::types::Seq;

/// The positions of one answer, both inclusive; empty when `first > last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: Seq,
    pub(super) last: Seq,
    range: HistoryRange,
    lower: Seq,
    upper: Seq,
}

impl Window {
    /// The window of a range in a log whose last committed position is `high_watermark`.
    pub(super) fn of(range: HistoryRange, high_watermark: Seq) -> Window {
        let limit = u64::from(range.limit.max(1));
        let visible = Seq(range.visible_from.0.max(1));
        if range.newer {
            let lower = Seq(range.start.0.max(visible.0));
            let upper = if range.end.0 == 0 {
                high_watermark
            } else {
                high_watermark.min(range.end.previous())
            };
            let last = Seq(upper.0.min(lower.0.saturating_add(limit - 1)));
            Window {
                first: lower,
                last,
                range,
                lower,
                upper,
            }
        } else {
            // Older: the end is exclusive and below the start.
            let lower = Seq(visible.0.max(range.end.0 + u64::from(range.end.0 > 0)));
            let upper = if range.start.0 == 0 {
                high_watermark
            } else {
                high_watermark.min(range.start)
            };
            let first = Seq(lower.0.max((upper.0 + 1).saturating_sub(limit)));
            Window {
                first,
                last: upper,
                range,
                lower,
                upper,
            }
        }
    }

    /// How many positions.
    pub(super) fn count(&self) -> u32 {
        u32::try_from((self.last.0 + 1).saturating_sub(self.first.0)).unwrap_or(u32::MAX)
    }

    /// Whether a position belongs to the answer.
    pub(super) fn contains(&self, seq: Seq) -> bool {
        seq >= self.first && seq <= self.last
    }

    /// Whether more positions match than are answered; what retention removed does not count.
    pub(super) fn more(&self, log_start: Seq) -> bool {
        if self.range.newer {
            self.last < self.upper
        } else {
            self.first > self.lower.max(log_start)
        }
    }

    /// The first kept position, when retention removed a part of what the answer covers.
    pub(super) fn gap(&self, log_start: Seq) -> Option<Seq> {
        (self.first < log_start && self.first <= self.last).then_some(log_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(newer: bool, start: u64, end: u64, limit: u32, visible: u64) -> (u64, u64, bool) {
        let range = HistoryRange {
            start: Seq(start),
            end: Seq(end),
            limit,
            newer,
            visible_from: Seq(visible),
        };
        let window = Window::of(range, Seq(100));
        (window.first.0, window.last.0, window.more(Seq(1)))
    }

    #[test]
    fn older_messages_end_at_the_start_and_stop_above_the_end() {
        assert_eq!(window(false, 0, 0, 30, 1), (71, 100, true));
        assert_eq!(window(false, 50, 0, 30, 1), (21, 50, true));
        assert_eq!(window(false, 50, 40, 30, 1), (41, 50, false));
        assert_eq!(window(false, 10, 0, 30, 1), (1, 10, false));
        assert_eq!(window(false, 0, 0, 30, 90), (90, 100, false));
        assert_eq!(window(false, 500, 0, 10, 1), (91, 100, true));
    }

    #[test]
    fn newer_messages_begin_at_the_start_and_end_below_the_end() {
        assert_eq!(window(true, 0, 0, 30, 1), (1, 30, true));
        assert_eq!(window(true, 91, 0, 30, 1), (91, 100, false));
        assert_eq!(window(true, 40, 50, 30, 1), (40, 49, false));
        assert_eq!(window(true, 5, 0, 10, 20), (20, 29, true));
    }

    #[test]
    fn removed_positions_are_named() {
        let range = HistoryRange {
            start: Seq(0),
            end: Seq(0),
            limit: 200,
            newer: false,
            visible_from: Seq(1),
        };
        let window = Window::of(range, Seq(100));
        assert_eq!(
            (window.gap(Seq(41)), window.more(Seq(41))),
            (Some(Seq(41)), false)
        );
        assert_eq!(window.gap(Seq(1)), None);
    }
}
