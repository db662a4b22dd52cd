//! Header fields in their order, in one piece of memory.

/// Bytes before each field: the lengths of its name and its value.
const HEAD_BYTES: usize = 8;

/// Header fields of a message. Names are in small letters; those of the protocol begin with a colon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Fields(Vec<u8>);

impl Fields {
    /// Appends a field.
    pub(in super::super) fn push(&mut self, name: &[u8], value: &[u8]) {
        for bytes in [name.len(), value.len()] {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.0.extend_from_slice(&bytes.to_ne_bytes());
        }
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(value);
    }

    /// Appends a field of a request. Returns false, and appends nothing, if no request may have it.
    pub(in super::super) fn push_checked(&mut self, name: &[u8], value: &[u8]) -> bool {
        let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let printable = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        let good = !name.is_empty() && name.iter().all(token) && value.iter().all(printable);
        if good {
            self.push(&name.to_ascii_lowercase(), value);
        }
        good
    }

    /// The status of a response; `None` if these are not the fields of one: its status alone is a field
    /// of the protocol and stands first, and names have no capital letters.
    pub(super) fn status(&self) -> Option<u16> {
        let mut fields = self.iter();
        let (b":status", value) = fields.next()? else {
            return None;
        };
        let good = fields.all(|(name, _)| is_name(name)) && value.len() == 3;
        let digits = value.iter().all(u8::is_ascii_digit);
        let status = std::str::from_utf8(value).ok()?.parse().ok()?;
        (good && digits && (100..600).contains(&status)).then_some(status)
    }

    /// True if a name is one of the protocol, or none that a field may have.
    pub(super) fn has_names_of_protocol(&self) -> bool {
        self.iter().any(|(name, _)| !is_name(name))
    }

    /// The fields, each with its name and value.
    pub(in super::super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (head, after) = rest.split_first_chunk::<HEAD_BYTES>()?;
            let [name @ .., _, _, _, _] = head;
            let [_, _, _, _, value @ ..] = head;
            let length = |bytes: [u8; 4]| usize::try_from(u32::from_ne_bytes(bytes)).ok();
            let (name, after) = after.split_at_checked(length(*name)?)?;
            let (value, after) = after.split_at_checked(length(*value)?)?;
            rest = after;
            Some((name, value))
        })
    }

    /// The value of the first field of a name.
    pub(in super::super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// The values of all fields of a name.
    pub(in super::super) fn get_all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.iter()
            .filter(move |(its, _)| *its == name.as_bytes())
            .map(|(_, value)| value)
    }

    /// True if there is this field.
    pub(super) fn has(&self, name: &[u8], value: &[u8]) -> bool {
        self.iter().any(|it| it == (name, value))
    }

    /// Bytes in memory.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }
}

/// True if a field besides those of the protocol may have this name.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name[0] != b':' && !name.iter().any(u8::is_ascii_uppercase)
}
