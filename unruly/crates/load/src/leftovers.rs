//! What a run finds in a store and what it leaves there: data of others, and the keys that it wrote.

use std::time::Duration;

use unruly_trace::{DurationNs, MonoNs, monotonic};

use crate::introduction::{Conversation, IntroductionError};
use crate::link::Place;
use crate::target::{Answer, CENSUS, GREETING};
use crate::targets::Driver;
use crate::work::name_of;

/// Removals that are under way at once.
const BATCH: usize = 500;

/// Returns a description of data in a store that is not ours, such as the name of a key; `None` when
/// there is none, or the store cannot say.
///
/// # Errors
///
/// When a place is not there, or does not answer within `timeout`.
pub fn foreign(
    driver: &dyn Driver,
    timeout: Duration,
) -> Result<Option<String>, IntroductionError> {
    let until_ns = until(timeout);
    for (number, place) in speaking(driver) {
        let mut conversation = Conversation::open(place, driver.target(number), until_ns)?;
        if !conversation.say(|target, out| target.encode_census(out)) {
            continue;
        }
        let found = conversation.hear(until_ns, |incoming, _| match incoming.answer {
            Answer::Found(words) if incoming.request == CENSUS => {
                Some(String::from_utf8_lossy(words).into_owned())
            }
            _ => None,
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Removes keys from every place of a driver. Returns how many it removed at one place at least; a
/// store whose protocol cannot remove keeps them all.
///
/// # Errors
///
/// When a place is not there, or does not answer within `timeout`; the others are cleared all the same.
pub fn remove(
    driver: &dyn Driver,
    keys: &[u64],
    timeout: Duration,
) -> Result<usize, IntroductionError> {
    let mut removed = vec![false; keys.len()];
    let mut failed = None;
    let share = u32::try_from(driver.places().len()).unwrap_or(u32::MAX);
    for (number, place) in speaking(driver) {
        // A place that is silent leaves the others their time.
        let until_ns = until(timeout / share.max(1));
        let target = driver.target(number);
        let cleared = Conversation::open(place, target, until_ns).and_then(|mut conversation| {
            let batches = keys.chunks(BATCH).zip(removed.chunks_mut(BATCH));
            for (keys, removed) in batches {
                if !remove_batch(&mut conversation, keys, removed, until_ns)? {
                    break;
                }
            }
            Ok(())
        });
        failed = failed.or_else(|| cleared.err());
    }
    let count = removed.iter().filter(|it| **it).count();
    // Where places have different keys, each key was removed at the place that has it.
    match failed {
        Some(error) if driver.route().is_none() || count < keys.len() => Err(error),
        _ => Ok(count),
    }
}

/// Removes some keys. Returns whether the protocol can.
fn remove_batch(
    conversation: &mut Conversation,
    keys: &[u64],
    removed: &mut [bool],
    until_ns: MonoNs,
) -> Result<bool, IntroductionError> {
    let mut name = String::new();
    for (place, key) in keys.iter().enumerate() {
        name_of(*key, &mut name);
        let request = place as u64;
        if !conversation.say(|target, out| target.encode_removal(request, &name, out)) {
            return Ok(false);
        }
    }
    let mut left = keys.len();
    while left > 0 {
        let heard = conversation.hear(until_ns, |incoming, _| {
            (
                incoming.request,
                matches!(incoming.answer, Answer::Done | Answer::Missing),
            )
        });
        let (request, done) = heard?;
        if request != GREETING {
            left -= 1;
            if let Some(removed) = usize::try_from(request)
                .ok()
                .and_then(|it| removed.get_mut(it))
            {
                *removed |= done;
            }
        }
    }
    Ok(true)
}

/// The places that answer, with their numbers: nobody answers a socket that leads to itself.
fn speaking(driver: &dyn Driver) -> impl Iterator<Item = (usize, &Place)> {
    let places = driver.places().iter().enumerate();
    places.filter(|(_, place)| place.can_be_met())
}

fn until(timeout: Duration) -> MonoNs {
    monotonic() + DurationNs::from(timeout)
}
