package org.unruly.apps;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Optional;

/**
 * A search for a contradiction in the tables.
 *
 * @param sentence the contradiction, with a {@code %s} for each column of the query
 * @param query selects the rows that contradict; none if all is well
 */
record Check(String sentence, String query) {
  /** Returns the sentence about the first row that contradicts. */
  Optional<String> run(Connection database) throws SQLException {
    try (PreparedStatement statement = database.prepareStatement(query + " limit 1");
        ResultSet result = statement.executeQuery()) {
      if (!result.next()) {
        return Optional.empty();
      }
      Object[] values = new Object[result.getMetaData().getColumnCount()];
      for (int place = 0; place < values.length; place++) {
        values[place] = result.getObject(place + 1);
      }
      return Optional.of(String.format(sentence, values));
    }
  }
}
