//! What only clients of an HTTP server have: connections that are opened as they are needed, and
//! the status codes that count as success.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How an HTTP server is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http {
    /// Connections of all clients together, at most.
    pub connections: u32,
    /// Status codes that count as success.
    pub expect: Codes,
}

/// A set of status codes: `2xx, 404`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Codes(Vec<(u16, u16)>);

/// A text that is not a list of status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be status codes from 100 to 599, or classes of them: \"200, 404\", \"2xx, 3xx\"")]
pub struct CodesError;

impl Codes {
    /// True if the code is one of these.
    #[must_use]
    pub fn has(&self, code: u16) -> bool {
        self.0
            .iter()
            .any(|(least, most)| (*least..=*most).contains(&code))
    }
}

impl Default for Codes {
    /// Successes and redirects, which are not followed.
    fn default() -> Self {
        Self(vec![(200, 299), (300, 399)])
    }
}

impl FromStr for Codes {
    type Err = CodesError;

    fn from_str(text: &str) -> Result<Self, CodesError> {
        let code = |word: &str| {
            let found = word.len() == 3 && word.bytes().all(|it| it.is_ascii_digit());
            let found: Option<u16> = found.then(|| word.parse().ok()).flatten();
            found.filter(|code| (100..600).contains(code))
        };
        let range = |word: &str| match word.strip_suffix("xx") {
            Some(class) => code(&format!("{class}00")).map(|least| (least, least + 99)),
            None => code(word).map(|code| (code, code)),
        };
        let ranges = text.split(',').map(|word| range(word.trim()));
        let ranges: Option<Vec<_>> = ranges.collect();
        ranges.map(Self).ok_or(CodesError)
    }
}

impl fmt::Display for Codes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.iter().map(|(least, most)| {
            if least == most {
                least.to_string()
            } else {
                format!("{}xx", least / 100)
            }
        });
        formatter.pad(&words.collect::<Vec<_>>().join(", "))
    }
}

impl TryFrom<String> for Codes {
    type Error = CodesError;

    fn try_from(text: String) -> Result<Self, CodesError> {
        text.parse()
    }
}

impl From<Codes> for String {
    fn from(codes: Codes) -> Self {
        codes.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_and_written_as_they_were() {
        for text in ["404", "2xx", "2xx, 3xx, 404"] {
            let codes: Codes = text.parse().expect("they are");
            assert_eq!(codes.to_string(), text);
        }
        let lines = [
            "", "20", "2000", "600", "099", "0xx", "xx", "2xxx", "+20", "200,",
        ];
        for text in lines {
            assert_eq!(text.parse::<Codes>(), Err(CodesError), "{text}");
        }
    }

    #[test]
    fn a_class_has_all_its_codes_and_no_other() {
        let codes: Codes = "2xx,404".parse().expect("they are");
        let found: Vec<bool> = [199, 200, 299, 300, 403, 404, 405]
            .map(|code| codes.has(code))
            .to_vec();
        assert_eq!(found, [false, true, true, false, false, true, false]);
    }

    #[test]
    fn redirects_are_expected_and_errors_are_not() {
        let expected = [100, 200, 301, 404, 500].map(|code| Codes::default().has(code));
        assert_eq!(expected, [false, true, true, false, false]);
    }
}
