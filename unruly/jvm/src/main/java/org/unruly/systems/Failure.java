package org.unruly.systems;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.net.http.HttpTimeoutException;
import java.rmi.ServerError;
import java.rmi.ServerException;
import java.util.Locale;
import java.util.concurrent.TimeoutException;

/** A call that failed, with the kind that the lines of a driver have for it. */
final class Failure extends Exception {
  private static final long serialVersionUID = 1L;

  /** Longest chain of causes that is searched; a cause may be its own cause. */
  private static final int CAUSES_MAX = 10;

  private final Kind kind;

  /** The kinds of failure of {@code unruly/docs/drivers.md} that a call may have. */
  enum Kind {
    /** The system answered with an error, or with a wrong echo. */
    STORE,
    /** No reply came in time. */
    UNAVAILABLE,
    /** There is no connection, or it broke. */
    DISCONNECTED,
    /** The system has lost an earlier request, or done it twice. */
    WRONG;

    /** Returns its word in a line. */
    String word() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  Failure(Kind kind, String words) {
    super(words);
    this.kind = kind;
  }

  Failure(Kind kind, Throwable cause) {
    super(words(cause), cause);
    this.kind = kind;
  }

  Kind kind() {
    return kind;
  }

  /** Returns the failure of a timeout. */
  static Failure timeout(long timeoutNs) {
    return new Failure(Kind.UNAVAILABLE, "no reply within " + timeoutNs / 1_000_000 + " ms");
  }

  /** Returns the failure that any exception of a call is. */
  static Failure of(Throwable thrown) {
    Throwable cause = thrown;
    Kind kind = Kind.STORE;
    for (int depth = 0; cause != null && depth < CAUSES_MAX; depth++) {
      if (cause instanceof Failure failure) {
        return failure;
      }
      if (cause instanceof SocketTimeoutException
          || cause instanceof HttpTimeoutException
          || cause instanceof TimeoutException) {
        return new Failure(Kind.UNAVAILABLE, thrown);
      }
      // RMI wraps what the far object threw into these two
      if (cause instanceof ServerException || cause instanceof ServerError) {
        return new Failure(Kind.STORE, thrown);
      }
      if (cause instanceof IOException) {
        kind = Kind.DISCONNECTED;
      }
      cause = cause.getCause();
    }
    return new Failure(kind, thrown);
  }

  private static String words(Throwable thrown) {
    String message = thrown.getMessage();
    String name = thrown.getClass().getSimpleName();
    return message == null || message.isEmpty() ? name : name + ": " + message;
  }
}
