package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import java.util.Optional;

/**
 * A three-tier application: its tables, and operations on them by members.
 *
 * <p>The middle tier that runs it is stateless: everything that must outlive a request is in the
 * database. Each operation is one transaction, which the caller of {@link Action} begins and
 * commits.
 *
 * <p>An application counts the writes of each member in a row of its own tables, in the same
 * transaction as the write. {@link #tally} returns that count, and with it a request proves that
 * all earlier ones of its member were done once.
 */
interface Application {
  /** Returns the name that a plan has for it. */
  String name();

  /**
   * Returns the statements that make its tables and indexes where they are missing, in the dialect
   * that MariaDB and H2 have in common.
   */
  List<String> tables();

  /** Fills the empty tables with the rows that it begins with, which are the same each time. */
  void fill(Connection database) throws SQLException;

  /** Adds a member; does nothing if it is there. */
  void join(Connection database, long member) throws SQLException;

  /** Returns its operations. The place of an operation in the list is its number in a request. */
  List<Operation> operations();

  /** Returns how many writes of a member are in the tables. */
  Tally tally(Connection database, long member) throws SQLException;

  /**
   * Returns what contradicts itself in the tables, such as a seat that was sold twice or money that
   * came from nowhere; empty if nothing does. Reads whole tables, so it is called after a run.
   */
  Optional<String> contradiction(Connection database) throws SQLException;
}
