package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;

/** The work of an operation, in a transaction that its caller begins and commits. */
@FunctionalInterface
interface Action {
  /**
   * Returns the reply, at most 4,000 characters. An operation that its application refuses, such as
   * a bid that is too low, is a reply as well; a write that is refused still counts in the tally.
   *
   * @param member who asks
   * @param number the number of this request of the member; the row that a write adds has it
   * @param arguments numbers from a client: any value, in the number that its choice draws
   */
  String perform(Connection database, long member, long number, long[] arguments)
      throws SQLException;
}
