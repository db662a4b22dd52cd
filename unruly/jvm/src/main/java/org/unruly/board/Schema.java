package org.unruly.board;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.Random;

/** The tables of the board, and the rows that it begins with. */
public final class Schema {
  static final int CATEGORIES = 10;
  static final int USERS = 500;
  static final int STORIES = 2_000;
  static final int COMMENTS_OF_A_STORY = 10;

  /** The words of titles, which the searches look for. */
  static final List<String> WORDS =
      List.of("amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper");

  private static final String[] TABLES = {
    "create table if not exists categories(id int primary key, name varchar(50))",
    "create table if not exists users(id int auto_increment primary key, nickname varchar(50), rating int)",
    "create table if not exists stories(id int auto_increment primary key, title varchar(100), body varchar(2000),"
        + " writer int, category int, accepted int)",
    "create table if not exists comments(id int auto_increment primary key, story int, parent int, writer int,"
        + " subject varchar(100), body varchar(1000), rating int)",
    "create table if not exists moderations(id int auto_increment primary key, comment_id int, rating int)",
    "create index if not exists stories_category on stories(category)",
    "create index if not exists stories_title on stories(title)",
    "create index if not exists stories_accepted on stories(accepted)",
    "create index if not exists comments_story on comments(story)",
    "create index if not exists comments_parent on comments(parent)",
    "create index if not exists comments_subject on comments(subject)",
    "create index if not exists users_nickname on users(nickname)",
  };

  private Schema() {}

  /** Makes the tables, and fills them if they are empty. The same rows each time. */
  static void fill(Connection connection) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      for (String table : TABLES) {
        statement.execute(table);
      }
    }
    connection.setAutoCommit(false);
    addRows(connection);
    connection.commit();
    connection.setAutoCommit(true);
  }

  /** Returns the statements that make the tables and indexes where they are missing. */
  public static List<String> tables() {
    return List.of(TABLES);
  }

  /** Adds the rows to empty tables, in the transaction of the caller. The same rows each time. */
  public static void addRows(Connection connection) throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet counted = statement.executeQuery("select count(*) from categories")) {
      counted.next();
      if (counted.getInt(1) > 0) {
        return;
      }
    }
    categories(connection);
    users(connection);
    stories(connection);
    comments(connection);
  }

  private static void categories(Connection connection) throws SQLException {
    try (PreparedStatement row = connection.prepareStatement("insert into categories values(?, ?)")) {
      for (int id = 1; id <= CATEGORIES; id++) {
        row.setInt(1, id);
        row.setString(2, "category " + WORDS.get(id - 1));
        row.addBatch();
      }
      row.executeBatch();
    }
  }

  private static void users(Connection connection) throws SQLException {
    try (PreparedStatement row =
        connection.prepareStatement("insert into users(nickname, rating) values(?, ?)")) {
      for (int id = 1; id <= USERS; id++) {
        row.setString(1, "user" + id);
        row.setInt(2, id % 5);
        row.addBatch();
      }
      row.executeBatch();
    }
  }

  private static void stories(Connection connection) throws SQLException {
    Random random = new Random(1);
    try (PreparedStatement row =
        connection.prepareStatement(
            "insert into stories(title, body, writer, category, accepted) values(?, ?, ?, ?, 1)")) {
      for (int id = 1; id <= STORIES; id++) {
        row.setString(1, WORDS.get(random.nextInt(WORDS.size())) + " story " + id);
        row.setString(2, "a story of stones and water ".repeat(5 + random.nextInt(30)));
        row.setInt(3, 1 + random.nextInt(USERS));
        row.setInt(4, 1 + id % CATEGORIES);
        row.addBatch();
      }
      row.executeBatch();
    }
  }

  private static void comments(Connection connection) throws SQLException {
    Random random = new Random(2);
    try (PreparedStatement row =
        connection.prepareStatement(
            "insert into comments(story, parent, writer, subject, body, rating) values(?, ?, ?, ?, ?, 0)")) {
      for (int story = 1; story <= STORIES; story++) {
        for (int number = 0; number < COMMENTS_OF_A_STORY; number++) {
          int first = (story - 1) * COMMENTS_OF_A_STORY + 1;
          row.setInt(1, story);
          row.setInt(2, number == 0 ? 0 : first + random.nextInt(number));
          row.setInt(3, 1 + random.nextInt(USERS));
          row.setString(4, WORDS.get(random.nextInt(WORDS.size())) + " comment");
          row.setString(5, "a comment on it ".repeat(5 + random.nextInt(15)));
          row.addBatch();
        }
        row.executeBatch();
      }
    }
  }
}
