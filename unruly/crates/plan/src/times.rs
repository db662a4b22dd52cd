//! Arrivals that were seen elsewhere: a file of times.

use crate::error::PlanError;
use crate::limits::MAX_TIMES;

/// Nanoseconds from the first of the times, in a text with a time in seconds on each line. Empty lines,
/// and those that begin with `#`, are none.
///
/// # Errors
///
/// The first line that is no time, or is before the one above it.
pub fn times_ns(place: &str, text: &str) -> Result<Vec<u64>, PlanError> {
    let refuse = |line: usize, wrong: String, wanted: &str| PlanError {
        place: format!("{place}:{line}"),
        key: String::new(),
        wrong,
        wanted: wanted.to_owned(),
        hint: "one time in seconds on each line: 0.0125".to_owned(),
    };
    let mut times: Vec<u64> = Vec::new();
    let mut first = None;
    for (number, line) in text.lines().enumerate() {
        let word = line.trim();
        if word.is_empty() || word.starts_with('#') {
            continue;
        }
        let seconds: f64 = word
            .parse()
            .ok()
            .filter(|seconds: &f64| seconds.is_finite())
            .ok_or_else(|| {
                refuse(
                    number + 1,
                    format!("{word:?} is no time"),
                    "must be seconds",
                )
            })?;
        let since = seconds - *first.get_or_insert(seconds);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast from float saturates, and negative times are refused"
        )]
        let since_ns = (since * 1e9).round() as u64;
        if since < 0.0 || times.last().is_some_and(|last| since_ns < *last) {
            let wrong = format!("{word} is before the time above it");
            return Err(refuse(number + 1, wrong, "must be in order"));
        }
        if times.len() >= MAX_TIMES {
            let wrong = format!("there are more than {MAX_TIMES} times");
            return Err(refuse(number + 1, wrong, "must be fewer"));
        }
        times.push(since_ns);
    }
    if times.is_empty() {
        return Err(refuse(
            1,
            "there is no time".to_owned(),
            "must be at least one",
        ));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_first_of_them() {
        let text = "# seconds\n100.5\n\n100.5\n100.75\n103\n";
        let found = times_ns("times.txt", text).unwrap();
        assert_eq!(found, [0, 0, 250_000_000, 2_500_000_000]);
    }

    #[test]
    fn what_is_no_time_or_out_of_order_is_refused_with_its_line() {
        let said = |text: &str| times_ns("times.txt", text).unwrap_err().to_string();
        let hint = "hint: one time in seconds on each line: 0.0125";
        assert_eq!(
            said("1\nsoon\n"),
            format!("times.txt:2: \"soon\" is no time; must be seconds; {hint}")
        );
        assert_eq!(
            said("1\n2\n1.5\n"),
            format!("times.txt:3: 1.5 is before the time above it; must be in order; {hint}")
        );
        assert!(said("inf\n").starts_with("times.txt:1: \"inf\" is no time"));
        assert!(
            said("# none\n").starts_with("times.txt:1: there is no time; must be at least one")
        );
    }
}
