package org.unruly.apps;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.StringJoiner;

/** Runs a statement with its parameters, so that an application needs one line for it. */
final class Sql {
  private Sql() {}

  /** Changes rows; returns how many. */
  static int change(Connection database, String text, Object... values) throws SQLException {
    try (PreparedStatement statement = database.prepareStatement(text)) {
      bind(statement, values);
      return statement.executeUpdate();
    }
  }

  /** Inserts a row; returns the id that the database gave it. */
  static long add(Connection database, String text, Object... values) throws SQLException {
    try (PreparedStatement statement =
        database.prepareStatement(text, Statement.RETURN_GENERATED_KEYS)) {
      bind(statement, values);
      statement.executeUpdate();
      try (ResultSet keys = statement.getGeneratedKeys()) {
        keys.next();
        return keys.getLong(1);
      }
    }
  }

  /** Returns rows of numbers; a null is 0. */
  static List<long[]> rows(Connection database, String query, Object... values)
      throws SQLException {
    try (PreparedStatement statement = database.prepareStatement(query)) {
      bind(statement, values);
      try (ResultSet result = statement.executeQuery()) {
        List<long[]> rows = new ArrayList<>();
        int columns = result.getMetaData().getColumnCount();
        while (result.next()) {
          long[] row = new long[columns];
          for (int column = 0; column < columns; column++) {
            row[column] = result.getLong(column + 1);
          }
          rows.add(row);
        }
        return rows;
      }
    }
  }

  /** Returns the first row of numbers. */
  static Optional<long[]> row(Connection database, String query, Object... values)
      throws SQLException {
    return rows(database, query, values).stream().findFirst();
  }

  /** Returns the first number of the first row; 0 if there is no row. */
  static long number(Connection database, String query, Object... values) throws SQLException {
    return row(database, query, values).map(row -> row[0]).orElse(0L);
  }

  /** Returns rows as text: spaces between columns, commas between rows, "none" without rows. */
  static String text(Connection database, String query, Object... values) throws SQLException {
    try (PreparedStatement statement = database.prepareStatement(query)) {
      bind(statement, values);
      try (ResultSet result = statement.executeQuery()) {
        StringJoiner rows = new StringJoiner(", ").setEmptyValue("none");
        int columns = result.getMetaData().getColumnCount();
        while (result.next()) {
          StringJoiner row = new StringJoiner(" ");
          for (int column = 1; column <= columns; column++) {
            row.add(result.getString(column));
          }
          rows.add(row.toString());
        }
        return rows.toString();
      }
    }
  }

  private static void bind(PreparedStatement statement, Object... values) throws SQLException {
    for (int place = 0; place < values.length; place++) {
      statement.setObject(place + 1, values[place]);
    }
  }
}
