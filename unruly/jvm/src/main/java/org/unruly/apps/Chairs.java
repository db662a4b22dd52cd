package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;

/**
 * The chairs of games. A newcomer takes the chair that was held longest, because its holder may
 * never come back.
 *
 * @param games name of the table of games; its column {@code chair} is the chair to take next
 * @param table name of the table of chairs
 * @param count chairs of a game
 */
record Chairs(String games, String table, int count) {
  /** Returns the statements that make both tables, with columns of the application's own. */
  List<String> tables(String gameColumns, String chairColumns) {
    return List.of(
        "create table if not exists "
            + games
            + "(id int primary key, chair int not null default 0, "
            + gameColumns
            + ")",
        "create table if not exists "
            + table
            + "(game int not null, chair int not null, member bigint, "
            + chairColumns
            + ", primary key(game, chair))",
        "create index if not exists " + table + "_member on " + table + "(member)");
  }

  /** Adds games with empty chairs, numbered from 1; returns false if they are there. */
  boolean fill(Connection database, int number) throws SQLException {
    if (Sql.number(database, "select count(*) from " + games) > 0) {
      return false;
    }
    for (int game = 1; game <= number; game++) {
      Sql.change(database, "insert into " + games + "(id) values(?)", game);
      for (int chair = 0; chair < count; chair++) {
        Sql.change(
            database, "insert into " + table + "(game, chair) values(?, ?)", game, chair);
      }
    }
    return true;
  }

  /** Returns the game in which a member has a chair; 0 if there is none. */
  long game(Connection database, long member) throws SQLException {
    return Sql.number(database, "select game from " + table + " where member = ?", member);
  }

  /** Locks the game in which a member has a chair; returns 0 if there is none. */
  long lockGame(Connection database, long member) throws SQLException {
    long game = game(database, member);
    lock(database, game);
    // a newcomer may have taken the chair before the game was locked
    return game(database, member) == game ? game : 0;
  }

  private void lock(Connection database, long game) throws SQLException {
    Sql.row(database, "select id from " + games + " where id = ? for update", game);
  }

  /** Moves a member from the chair that it has to one of a game; returns that chair. */
  long take(Connection database, long member, long game) throws SQLException {
    long former = game(database, member);
    // all lock games in the order of their ids, so none waits for one that waits for it
    lock(database, Math.min(former, game));
    lock(database, Math.max(former, game));
    long chair = Sql.number(database, "select chair from " + games + " where id = ?", game);
    Sql.change(database, "update " + table + " set member = null where member = ?", member);
    Sql.change(
        database,
        "update " + table + " set member = ? where game = ? and chair = ?",
        member,
        game,
        chair);
    Sql.change(
        database, "update " + games + " set chair = ? where id = ?", (chair + 1) % count, game);
    return chair;
  }
}
