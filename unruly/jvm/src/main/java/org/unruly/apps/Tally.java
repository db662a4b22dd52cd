package org.unruly.apps;

/**
 * The writes of a member.
 *
 * @param writes how many
 * @param sum the sum of their numbers
 */
public record Tally(long writes, long sum) {
  /** Returns the tally after one more write. */
  public Tally with(long number) {
    return new Tally(writes + 1, sum + number);
  }
}
