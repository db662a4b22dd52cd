package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/**
 * The members of an application: a row with the tally of each, and a history row for each write.
 *
 * <p>The history has no unique key over member and number, so a write that is done twice shows.
 *
 * @param table name of the table of members
 * @param columns its columns beside the tally; each has a default
 * @param history name of the history
 * @param historyColumns its columns after member and number
 */
record Members(String table, String columns, String history, String historyColumns) {
  /** Returns the statements that make both tables, and those that make the application's own. */
  List<String> tables(String... own) {
    List<String> all = new ArrayList<>();
    all.add(
        "create table if not exists "
            + table
            + "(member bigint primary key, writes bigint not null default 0,"
            + " write_sum bigint not null default 0"
            + (columns.isEmpty() ? ")" : ", " + columns + ")"));
    all.add(
        "create table if not exists "
            + history
            + "(id bigint auto_increment primary key, member bigint not null,"
            + " number bigint not null, "
            + historyColumns
            + ")");
    all.add("create index if not exists " + history + "_member on " + history + "(member)");
    all.addAll(Arrays.asList(own));
    return List.copyOf(all);
  }

  /** Adds a member; returns false if it is there. */
  boolean join(Connection database, long member) throws SQLException {
    return Sql.change(database, "insert ignore into " + table + "(member) values(?)", member) == 1;
  }

  /** Returns the tally of a member. */
  Tally tally(Connection database, long member) throws SQLException {
    return Sql.row(
            database, "select writes, write_sum from " + table + " where member = ?", member)
        .map(row -> new Tally(row[0], row[1]))
        .orElse(new Tally(0, 0));
  }

  /** Locks the row of a member; returns the numbers in some of its columns. */
  long[] lock(Connection database, long member, String wanted) throws SQLException {
    String query = "select " + wanted + " from " + table + " where member = ? for update";
    return Sql.row(database, query, member).orElseThrow(() -> absent(member));
  }

  /**
   * Adds a write to the history and to the tally of its member.
   *
   * @param values the values of the history's own columns
   */
  void record(Connection database, long member, long number, Object... values)
      throws SQLException {
    Object[] all = new Object[values.length + 2];
    all[0] = member;
    all[1] = number;
    System.arraycopy(values, 0, all, 2, values.length);
    String places = ", ?".repeat(all.length);
    Sql.change(database, "insert into " + history + " values(default" + places + ")", all);
    String count = " set writes = writes + 1, write_sum = write_sum + ? where member = ?";
    if (Sql.change(database, "update " + table + count, number, member) != 1) {
      throw absent(member);
    }
  }

  private SQLException absent(long member) {
    return new SQLException(table + ": member " + member + " has not joined");
  }

  /** Returns the first contradiction: of the tallies and the history, or of the checks. */
  Optional<String> contradiction(Connection database, Check... own) throws SQLException {
    List<Check> checks = new ArrayList<>(tallyChecks());
    checks.addAll(Arrays.asList(own));
    for (Check check : checks) {
      Optional<String> found = check.run(database);
      if (found.isPresent()) {
        return found;
      }
    }
    return Optional.empty();
  }

  private List<Check> tallyChecks() {
    String joined = " from %1$s m left join %2$s h on h.member = m.member";
    String orphans = " from %2$s h left join %1$s m on m.member = h.member";
    return List.of(
        new Check(
            table + ": member %s counts %s writes with sum %s, but has %s rows with sum %s",
            named(
                "select m.member, m.writes, m.write_sum, count(h.id), coalesce(sum(h.number), 0)"
                    + joined
                    + " group by m.member, m.writes, m.write_sum having m.writes <> count(h.id)"
                    + " or m.write_sum <> coalesce(sum(h.number), 0)")),
        new Check(
            history + ": member %s has %s rows, but has not joined",
            named(
                "select h.member, count(*)"
                    + orphans
                    + " where m.member is null group by h.member")),
        new Check(
            history + ": write %2$s of member %1$s was done %3$s times",
            named(
                "select member, number, count(*) from %2$s"
                    + " group by member, number having count(*) > 1")));
  }

  private String named(String query) {
    return String.format(query, table, history);
  }
}
