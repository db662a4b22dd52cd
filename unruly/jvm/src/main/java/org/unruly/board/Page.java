package org.unruly.board;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/** A page while it is made: text, and rows of the database. */
public final class Page {
  private final StringBuilder text = new StringBuilder(8_192);
  private final Connection connection;

  /** A page without rows if {@code connection} is null. */
  Page(String title, Connection connection) {
    this.connection = connection;
    text.append("<html><head><title>").append(title).append("</title></head><body><h1>").append(title).append("</h1>\n");
  }

  /** Adds a paragraph. */
  Page say(String words) {
    text.append("<p>").append(words).append("</p>\n");
    return this;
  }

  /** Adds the rows of a query, each as an item of a list. */
  Page list(String query, Object... values) throws SQLException {
    try (PreparedStatement statement = prepared(query, values);
        ResultSet rows = statement.executeQuery()) {
      int columns = rows.getMetaData().getColumnCount();
      text.append("<ul>\n");
      while (rows.next()) {
        text.append("<li>");
        for (int column = 1; column <= columns; column++) {
          text.append(rows.getString(column)).append(column < columns ? " | " : "</li>\n");
        }
      }
      text.append("</ul>\n");
    }
    return this;
  }

  /** Changes rows. */
  Page change(String query, Object... values) throws SQLException {
    try (PreparedStatement statement = prepared(query, values)) {
      return say(statement.executeUpdate() + " stored");
    }
  }

  private PreparedStatement prepared(String query, Object... values) throws SQLException {
    PreparedStatement statement = connection.prepareStatement(query);
    for (int place = 0; place < values.length; place++) {
      statement.setObject(place + 1, values[place]);
    }
    return statement;
  }

  /**
   * Returns the page as HTML.
   *
   * @param rounds how often it is rendered, which stands for the work of a larger application: each time all of its
   *     text is copied and looked through
   */
  public String render(int rounds) {
    String page = text.append("</body></html>\n").toString();
    String rendered = page;
    for (int round = 0; round < rounds; round++) {
      rendered = escaped(page);
    }
    // the work must not be taken for useless
    return rendered.isEmpty() ? "" : page;
  }

  private static String escaped(String page) {
    StringBuilder out = new StringBuilder(page.length() + page.length() / 4);
    for (int place = 0; place < page.length(); place++) {
      char letter = page.charAt(place);
      switch (letter) {
        case '<' -> out.append("&lt;");
        case '>' -> out.append("&gt;");
        case '&' -> out.append("&amp;");
        default -> out.append(letter);
      }
    }
    return out.toString();
  }
}
