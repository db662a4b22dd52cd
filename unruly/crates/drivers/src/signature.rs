//! Request signatures of Amazon's services (version 4), which other services use too: a chain of
//! HMAC-SHA256 over the date, the region and the service, and then over the request.

use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};

/// Who asks, and whom.
#[derive(Debug, Clone)]
pub(crate) struct Signer {
    pub(crate) key_id: String,
    pub(crate) secret: String,
    pub(crate) region: &'static str,
    pub(crate) service: &'static str,
}

/// What is asked. Path and query are as they are on the wire, the query in the order of its names.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    /// Names in lower case, in their order.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The SHA-256 of the body, in hexadecimal.
    pub(crate) body_sha256: &'a str,
    /// The date, such as `20150830T123600Z`. It is also one of the headers.
    pub(crate) date: &'a str,
}

impl Signer {
    /// The header `Authorization`.
    pub(crate) fn authorization(&self, asked: &Asked<'_>) -> String {
        let day = asked.date.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let headers = asked
            .headers
            .iter()
            .map(|(name, value)| format!("{name}:{value}\n"));
        let names: Vec<&str> = asked.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let canonical = format!(
            "{}\n{}\n{}\n{}\n{names}\n{}",
            asked.method,
            asked.path,
            asked.query,
            headers.collect::<String>(),
            asked.body_sha256
        );
        let hash = sha256(canonical.as_bytes());
        let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{hash}", asked.date);
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [day, self.region, self.service, "aws4_request", &text] {
            key = sign(&Key::new(HMAC_SHA256, &key), part.as_bytes())
                .as_ref()
                .to_vec();
        }
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
            self.key_id,
            hexadecimal(&key)
        )
    }
}

/// In hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(digest(&SHA256, bytes).as_ref())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `get-vanilla` of the test suite that Amazon publishes.
    #[test]
    fn a_signature_is_the_one_of_the_published_example() {
        let signer = Signer {
            key_id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            region: "us-east-1",
            service: "service",
        };
        let asked = Asked {
            method: "GET",
            path: "/",
            query: "",
            headers: &[
                ("host", "example.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
            ],
            body_sha256: &sha256(b""),
            date: "20150830T123600Z",
        };
        assert_eq!(
            signer.authorization(&asked),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
    }
}
