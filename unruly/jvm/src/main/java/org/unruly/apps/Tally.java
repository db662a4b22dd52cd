package org.unruly.apps;

/**
 * The writes of a member.
 *
 * @param writes how many
 * @param sum the sum of their numbers
 */
record Tally(long writes, long sum) {
  /** Returns the tally after one more write. */
  Tally with(long number) {
    return new Tally(writes + 1, sum + number);
  }
}
