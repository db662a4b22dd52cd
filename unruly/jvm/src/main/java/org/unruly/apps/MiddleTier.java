package org.unruly.apps;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.tomcat.jdbc.pool.DataSource;
import org.apache.tomcat.jdbc.pool.PoolProperties;

/**
 * The middle tier of an application: it runs operations as transactions of a database, and keeps
 * nothing itself.
 *
 * <p>A member numbers its requests. The reply to a write is stored in the transaction of the write,
 * so a request that is sent again, to this middle tier or to another one, is answered with that
 * reply and not done twice.
 *
 * <p>Each request says which writes of its member were answered. The middle tier compares them with
 * those in the tables of the application: a write that is missing, or was done twice, is reported
 * in the reply.
 */
public final class MiddleTier {
  private static final int POOL_WAIT_MS = 5_000;
  private static final int TRIES = 20;
  private static final long PAUSE_NS = 2_000_000;
  private static final String KEY_EXISTS = "23";
  private static final String CONNECTION_BROKE = "08";

  /** Time for which an operation is tried again that other transactions are in the way of. */
  private static final long CONFLICT_NS = 4_000_000_000L;

  /** Time that another middle tier may take to fill the tables. */
  private static final long FILL_NS = 60_000_000_000L;

  private static final String[] TABLES = {
    "create table if not exists results(member bigint primary key, number bigint not null,"
        + " reply varchar(4000) not null)",
    "create table if not exists filled(id int primary key)",
  };

  private final Application application;
  private final DataSource pool;
  private final Spans spans;

  /**
   * Creates a middle tier.
   *
   * @param application the name of its application
   * @param url the database, for JDBC
   * @param connections the most connections to it
   * @param spans where its spans go
   */
  public MiddleTier(
      String application, String url, String user, String password, int connections, Spans spans) {
    this.application = Applications.of(application);
    this.spans = spans;
    PoolProperties settings = new PoolProperties();
    settings.setUrl(url);
    settings.setUsername(user);
    settings.setPassword(password);
    settings.setMaxActive(connections);
    settings.setMaxIdle(connections);
    settings.setInitialSize(0);
    settings.setMinIdle(0);
    settings.setMaxWait(POOL_WAIT_MS);
    settings.setJmxEnabled(false);
    settings.setDefaultAutoCommit(false);
    // a statement sees what others have committed; with the snapshots of the default, two writes of
    // one row could both start from the same value
    settings.setDefaultTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
    pool = new DataSource(settings);
  }

  /** Makes and fills the tables, unless they are there: of several middle tiers one fills them. */
  public void prepare() throws SQLException {
    for (int attempt = 1; ; attempt++) {
      try (Connection database = pool.getConnection()) {
        make(database);
        break;
      } catch (SQLException thrown) {
        // two middle tiers that make one table or index at once can fail, though both allow for it
        if (attempt == TRIES) {
          throw thrown;
        }
        LockSupport.parkNanos(attempt * PAUSE_NS);
      }
    }
    long untilNs = System.nanoTime() + FILL_NS;
    while (true) {
      try (Connection database = pool.getConnection()) {
        fill(database);
        return;
      } catch (SQLException thrown) {
        // it waits for the one that fills longer than a lock may be waited for
        if (!isConflict(thrown) || System.nanoTime() > untilNs) {
          throw thrown;
        }
      }
    }
  }

  private void make(Connection database) throws SQLException {
    try (Statement statement = database.createStatement()) {
      for (String table : TABLES) {
        statement.execute(table);
      }
      for (String table : application.tables()) {
        statement.execute(table);
      }
    }
    database.commit();
  }

  private void fill(Connection database) throws SQLException {
    try (Statement statement = database.createStatement()) {
      // the others wait for this row until the one that inserted it commits
      statement.execute("insert into filled values(1)");
    } catch (SQLException thrown) {
      database.rollback();
      if (isOf(thrown, KEY_EXISTS)) {
        return;
      }
      throw thrown;
    }
    application.fill(database);
    database.commit();
  }

  /** Returns what contradicts itself in the tables; empty if nothing does. Reads whole tables. */
  public String contradiction() throws SQLException {
    try (Connection database = pool.getConnection()) {
      return application.contradiction(database).orElse("");
    }
  }

  /** Closes the connections to the database. */
  public void close() {
    pool.close(true);
  }

  /** Returns the reply to the bytes of a request. */
  public byte[] handle(byte[] bytes) {
    long startedNs = System.nanoTime();
    Request request;
    try {
      request = Request.read(bytes);
    } catch (IllegalArgumentException thrown) {
      return new Reply(0, Reply.Status.REFUSED, thrown.getMessage()).bytes(0);
    }
    Trace trace = request.trace();
    long span = Spans.id();
    Reply reply = reply(request, new Trace(trace.high(), trace.low(), span));
    // with active replication a request may come late, when its member has gone on
    boolean failed = reply.status() == Reply.Status.FAILED;
    spans.add(trace, span, "handle", Spans.Kind.SERVER, startedNs, failed);
    return reply.bytes(request.replyBytes());
  }

  private Reply reply(Request request, Trace below) {
    List<Operation> operations = application.operations();
    if (request.operation() >= operations.size()) {
      String words = "there is no operation " + request.operation();
      return new Reply(request.number(), Reply.Status.REFUSED, words);
    }
    Operation operation = operations.get(request.operation());
    long untilNs = System.nanoTime() + CONFLICT_NS;
    for (int attempt = 1; ; attempt++) {
      try {
        return attempt(request, operation, below);
      } catch (SQLException thrown) {
        if (isOf(thrown, CONNECTION_BROKE)) {
          // the others of the pool may be broken as well
          pool.purge();
        }
        if (System.nanoTime() > untilNs || !isConflict(thrown)) {
          String words = "database: " + thrown.getMessage();
          return new Reply(request.number(), Reply.Status.FAILED, words);
        }
        LockSupport.parkNanos(Math.min(attempt, TRIES) * PAUSE_NS);
      } catch (RuntimeException thrown) {
        return new Reply(request.number(), Reply.Status.REFUSED, thrown.toString());
      }
    }
  }

  private Reply attempt(Request request, Operation operation, Trace below) throws SQLException {
    long startedNs = System.nanoTime();
    try (Connection database = pool.getConnection()) {
      spans.add(below, Spans.id(), "pool.get", Spans.Kind.INTERNAL, startedNs, false);
      boolean failed = true;
      try {
        Connection traced = TracedDatabase.of(database, spans, below);
        Reply reply = transaction(traced, request, operation);
        traced.commit();
        failed = false;
        return reply;
      } finally {
        if (failed) {
          undo(database);
        }
      }
    }
  }

  private static void undo(Connection database) {
    try {
      database.rollback();
    } catch (SQLException thrown) {
      // the connection is gone, and the database undoes the transaction itself
    }
  }

  private Reply transaction(Connection database, Request request, Operation operation)
      throws SQLException {
    if (request.number() == 0) {
      return join(database, request);
    }
    if (operation.isWrite()) {
      Reply stored = stored(database, request);
      if (stored != null) {
        return stored;
      }
    }
    Tally found = application.tally(database, request.member());
    if (!found.equals(request.done())) {
      return new Reply(request.number(), Reply.Status.WRONG, difference(found, request.done()));
    }
    String words =
        operation
            .action()
            .perform(database, request.member(), request.number(), request.arguments());
    if (operation.isWrite()) {
      store(database, request, words);
    }
    return new Reply(request.number(), Reply.Status.DONE, words);
  }

  private Reply join(Connection database, Request request) throws SQLException {
    long member = request.member();
    try (PreparedStatement row =
        database.prepareStatement("insert into results(member, number, reply) values(?, 0, '')")) {
      row.setLong(1, member);
      row.executeUpdate();
      application.join(database, member);
    } catch (SQLException thrown) {
      // a request that is sent again finds its member
      if (!isOf(thrown, KEY_EXISTS)) {
        throw thrown;
      }
    }
    return new Reply(request.number(), Reply.Status.DONE, application.name());
  }

  /** Returns the reply to a write that need not be done, or null. Others with its member wait. */
  private static Reply stored(Connection database, Request request) throws SQLException {
    try (PreparedStatement row =
        database.prepareStatement("select number, reply from results where member = ? for update")) {
      row.setLong(1, request.member());
      try (ResultSet found = row.executeQuery()) {
        if (!found.next()) {
          String words = "the member is lost: there is no member " + request.member();
          return new Reply(request.number(), Reply.Status.WRONG, words);
        }
        long last = found.getLong(1);
        if (last == request.number()) {
          return new Reply(request.number(), Reply.Status.DONE, found.getString(2));
        }
        if (last > request.number()) {
          String words = "request " + request.number() + " is older than the last write, " + last;
          return new Reply(request.number(), Reply.Status.REFUSED, words);
        }
        return null;
      }
    }
  }

  private static void store(Connection database, Request request, String words)
      throws SQLException {
    try (PreparedStatement row =
        database.prepareStatement("update results set number = ?, reply = ? where member = ?")) {
      row.setLong(1, request.number());
      row.setString(2, words);
      row.setLong(3, request.member());
      row.executeUpdate();
    }
  }

  private static String difference(Tally found, Tally expected) {
    String which =
        found.writes() < expected.writes()
            ? "a write is lost"
            : found.writes() > expected.writes() ? "a write was done twice" : "a write is another";
    return which
        + ": the tables have "
        + found.writes()
        + " writes of the member, and "
        + expected.writes()
        + " were answered (sums of their numbers: "
        + found.sum()
        + " and "
        + expected.sum()
        + ")";
  }

  private static boolean isOf(SQLException thrown, String stateClass) {
    String state = thrown.getSQLState();
    return state != null && state.startsWith(stateClass);
  }

  /** Returns true if another transaction was in the way, so that the next try may succeed. */
  private static boolean isConflict(SQLException thrown) {
    int lockWaitTimeout = 1205;
    String state = thrown.getSQLState();
    boolean isLock = state != null && (state.startsWith("40") || state.equals("HYT00"));
    return isLock || thrown.getErrorCode() == lockWaitTimeout;
  }
}
