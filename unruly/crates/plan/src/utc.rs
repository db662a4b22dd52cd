//! The civil date of a wall clock, as names of runs and signatures have it.

/// `20261120T221100Z` of a wall clock, by the civil-from-days algorithm of Howard Hinnant.
#[must_use]
pub fn utc(wall_ns: i64) -> String {
    let seconds = wall_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second % 3600 / 60);
    format!(
        "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{:02}Z",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn the_name_of_a_run_has_the_civil_date() {
        assert_eq!(utc(0), "19700101T000000Z");
        assert_eq!(utc(951_827_696_000_000_000), "20000229T123456Z");
        assert_eq!(utc(1_795_212_671_000_000_000), "20261120T221111Z");
    }
}
