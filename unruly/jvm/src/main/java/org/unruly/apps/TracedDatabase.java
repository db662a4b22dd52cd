package org.unruly.apps;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.PreparedStatement;

/** A connection to the database, of which each statement and each commit is a span. */
final class TracedDatabase {
  private TracedDatabase() {}

  /** Returns the connection itself if nobody wants its spans. */
  static Connection of(Connection database, Spans spans, Trace trace) {
    if (!trace.isWanted()) {
      return database;
    }
    return traced(Connection.class, database, spans, trace);
  }

  private static <T> T traced(Class<T> type, T wrapped, Spans spans, Trace trace) {
    Object proxy =
        Proxy.newProxyInstance(
            TracedDatabase.class.getClassLoader(),
            new Class<?>[] {type},
            (self, method, arguments) -> {
              boolean isStatement = method.getName().startsWith("execute");
              boolean isTimed = isStatement || method.getName().equals("commit");
              long startedNs = System.nanoTime();
              boolean failed = true;
              try {
                Object found = method.invoke(wrapped, arguments);
                failed = false;
                return found instanceof PreparedStatement statement
                    ? traced(PreparedStatement.class, statement, spans, trace)
                    : found;
              } catch (InvocationTargetException thrown) {
                throw thrown.getCause();
              } finally {
                if (isTimed) {
                  String name = isStatement ? "statement" : "commit";
                  spans.add(trace, Spans.id(), name, Spans.Kind.CLIENT, startedNs, failed);
                }
              }
            });
    return type.cast(proxy);
  }
}
