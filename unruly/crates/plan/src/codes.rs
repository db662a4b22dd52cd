//! Status codes that count as success: those of HTTP, or those of gRPC.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A set of status codes: `2xx, 404`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Codes {
    /// From the first to the last, both included.
    ranges: Vec<(u16, u16)>,
    /// Those of gRPC, which have names.
    names: Vec<String>,
}

/// A text that is not a list of status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be status codes from 100 to 599, or classes of them: \"200, 404\", \"2xx, 3xx\"")]
pub struct CodesError;

/// A text that is not a list of status codes of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be status codes of gRPC: \"OK, NOT_FOUND\"")]
pub struct GrpcCodesError;

impl Codes {
    /// True if the code is one of these.
    #[must_use]
    pub fn has(&self, code: u16) -> bool {
        self.ranges
            .iter()
            .any(|(least, most)| (*least..=*most).contains(&code))
    }

    /// The names of the codes of gRPC, in capital letters. Which of them there are is known to the
    /// driver.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The one code that means success in gRPC.
    #[must_use]
    pub fn grpc_ok() -> Self {
        Self {
            ranges: Vec::new(),
            names: vec!["OK".to_owned()],
        }
    }

    /// The codes of gRPC with these names.
    ///
    /// # Errors
    ///
    /// When one cannot be a name.
    pub fn of_grpc(text: &str) -> Result<Self, GrpcCodesError> {
        let names = text.split(',').map(|word| {
            let word = word.trim();
            let fits = !word.is_empty() && word.len() <= 32;
            let letters = word
                .bytes()
                .all(|it| it.is_ascii_alphabetic() || it == b'_');
            (fits && letters).then(|| word.to_ascii_uppercase())
        });
        Ok(Self {
            ranges: Vec::new(),
            names: names.collect::<Option<_>>().ok_or(GrpcCodesError)?,
        })
    }
}

impl Default for Codes {
    /// Successes and redirects, which are not followed.
    fn default() -> Self {
        Self {
            ranges: vec![(200, 299), (300, 399)],
            names: Vec::new(),
        }
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
        Ok(Self {
            ranges: ranges.ok_or(CodesError)?,
            names: Vec::new(),
        })
    }
}

impl fmt::Display for Codes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.ranges.iter().map(|(least, most)| {
            if least == most {
                least.to_string()
            } else {
                format!("{}xx", least / 100)
            }
        });
        let words = ranges.chain(self.names.iter().cloned());
        formatter.pad(&words.collect::<Vec<_>>().join(", "))
    }
}

impl TryFrom<String> for Codes {
    type Error = CodesError;

    fn try_from(text: String) -> Result<Self, CodesError> {
        // Those of gRPC have no digits, so there is one reading.
        text.parse()
            .or_else(|_| Self::of_grpc(&text).map_err(|_| CodesError))
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

    #[test]
    fn codes_of_grpc_have_names() {
        let codes = Codes::of_grpc("ok, Not_Found").expect("they are");
        assert_eq!(codes.to_string(), "OK, NOT_FOUND");
        assert_eq!(codes.names(), ["OK", "NOT_FOUND"]);
        assert!(!codes.has(200));
        assert_eq!(Codes::try_from(codes.to_string()), Ok(codes));
        assert_eq!("OK".parse::<Codes>(), Err(CodesError));
        for text in ["", "200", "OK,", "OK, 404"] {
            assert_eq!(Codes::of_grpc(text), Err(GrpcCodesError), "{text}");
        }
    }
}
