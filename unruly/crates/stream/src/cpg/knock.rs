//! The knock: a datagram with which a writer contacts its readers. It lists all readers, so that
//! each daemon knows all the others from the start.

use std::net::Ipv4Addr;

use crate::header::{HEADER_BYTES, Header};

const KNOCK: Header = Header {
    sequence: 0,
    stamp_ns: None,
    end: false,
};
const ADDRESS_BYTES: usize = 4;
/// Longest knock that a reader accepts, in bytes.
pub(super) const LONGEST_BYTES: usize =
    HEADER_BYTES + ADDRESS_BYTES * unruly_plan::MAX_READERS as usize;

/// Returns a knock that lists these readers.
pub(super) fn written(cookie: u32, readers: &[Ipv4Addr]) -> Vec<u8> {
    let mut knock = vec![0; HEADER_BYTES];
    knock.extend(readers.iter().flat_map(Ipv4Addr::octets));
    KNOCK.write(cookie, &mut knock);
    knock
}

/// Returns the readers that a knock lists, if it belongs to this run and lists `own`.
pub(super) fn read(cookie: u32, own: Ipv4Addr, knock: &[u8]) -> Option<Vec<Ipv4Addr>> {
    let readers = knock.get(HEADER_BYTES..)?;
    if Header::read(cookie, knock) != Some(KNOCK) || readers.len() % ADDRESS_BYTES != 0 {
        return None;
    }
    let readers = readers.chunks_exact(ADDRESS_BYTES);
    let readers: Vec<Ipv4Addr> = readers
        .filter_map(|it| <[u8; ADDRESS_BYTES]>::try_from(it).ok())
        .map(Ipv4Addr::from)
        .collect();
    readers.contains(&own).then_some(readers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3)];

    #[test]
    fn each_reader_hears_who_all_are() {
        let knock = written(7, &READERS);
        for own in READERS {
            assert_eq!(read(7, own, &knock), Some(READERS.to_vec()));
        }
    }

    #[test]
    fn a_knock_of_another_run_or_at_others_or_cut_off_is_none() {
        let knock = written(7, &READERS);
        assert_eq!(read(8, READERS[0], &knock), None);
        assert_eq!(read(7, Ipv4Addr::LOCALHOST, &knock), None);
        for length in 0..knock.len() {
            assert_eq!(
                read(7, READERS[0], &knock[..length]),
                None,
                "{length} bytes"
            );
        }
        assert_eq!(
            read(7, READERS[0], &[knock.as_slice(), b"?"].concat()),
            None
        );
    }

    #[test]
    fn one_at_as_many_as_a_plan_may_have_is_not_too_long() {
        let most = vec![READERS[0]; unruly_plan::MAX_READERS.into()];
        assert_eq!(written(7, &most).len(), LONGEST_BYTES);
    }
}
