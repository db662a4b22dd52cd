package org.unruly.apps;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Two middle tiers of one application, on a database in memory. */
class MiddleTierTest {
  private static final String APPLICATION = "ticket-center";
  private static final int REQUESTS = 200;

  private final String url =
      "jdbc:h2:mem:middle" + System.nanoTime() + ";MODE=MariaDB;DB_CLOSE_DELAY=-1;LOCK_TIMEOUT=9000";
  private final MiddleTier first = middleTier();
  private final MiddleTier second = middleTier();
  private final Member member = new Member(APPLICATION);

  private MiddleTier middleTier() {
    return new MiddleTier(APPLICATION, url, "sa", "", 8, new Spans("test"));
  }

  @AfterEach
  void close() {
    first.close();
    second.close();
  }

  private void join() throws SQLException {
    first.prepare();
    assertEquals(Reply.Status.DONE, member.take(first.handle(member.join())).status());
  }

  private byte[] next() {
    return member.next(64, Trace.NONE);
  }

  /** Returns the bytes of the next write, after the reads before it were answered. */
  private byte[] nextWrite() {
    while (true) {
      byte[] request = next();
      int operation = Request.read(request).operation();
      if (Applications.of(APPLICATION).operations().get(operation).isWrite()) {
        return request;
      }
      assertEquals(Reply.Status.DONE, member.take(first.handle(request)).status());
    }
  }

  private void execute(String statement) throws SQLException {
    try (Connection database = DriverManager.getConnection(url, "sa", "");
        Statement one = database.createStatement()) {
      one.executeUpdate(statement);
    }
  }

  @Test
  void aWriteThatIsSentAgainIsDoneOnceAndAnsweredAlikeByEitherMiddleTier() throws Exception {
    join();
    for (int round = 0; round < REQUESTS; round++) {
      byte[] write = nextWrite();
      Reply reply = Reply.read(first.handle(write));
      assertEquals(Reply.Status.DONE, reply.status(), reply.words());
      assertEquals(reply, Reply.read(second.handle(write)));
      assertEquals(reply, member.take(first.handle(write)));
    }
    assertEquals("", first.contradiction());
  }

  @Test
  void aWriteThatIsSentToBothMiddleTiersAtOnceIsDoneOnce() throws Exception {
    join();
    for (int round = 0; round < REQUESTS; round++) {
      byte[] request = nextWrite();
      CompletableFuture<byte[]> other = CompletableFuture.supplyAsync(() -> second.handle(request));
      byte[] own = first.handle(request);
      Reply reply = member.take(own);
      assertEquals(Reply.Status.DONE, reply.status(), reply.words());
      assertEquals(reply, Reply.read(other.get()));
    }
    assertEquals("", first.contradiction());
  }

  @Test
  void aWriteThatTheTablesHaveLostIsReported() throws Exception {
    join();
    byte[] write = nextWrite();
    // the reply comes, and the write does not
    member.take(new Reply(Request.read(write).number(), Reply.Status.DONE, "sold").bytes(0));
    Reply reply = Reply.read(first.handle(next()));
    assertEquals(Reply.Status.WRONG, reply.status());
    assertTrue(reply.words().startsWith("a write is lost"), reply.words());
  }

  @Test
  void aWriteThatWasDoneTwiceIsReported() throws Exception {
    join();
    byte[] write = nextWrite();
    member.take(first.handle(write));
    // a database that forgets the result lets the write happen again
    execute("update results set number = 0");
    assertEquals(Reply.Status.WRONG, Reply.read(second.handle(write)).status());
    execute("update results set number = 0");
    byte[] again = new Request(
            Request.read(write).member(),
            Request.read(write).number(),
            Request.read(write).operation(),
            Request.read(next()).done(),
            0,
            Trace.NONE,
            Request.read(write).arguments())
        .bytes(0);
    assertEquals(Reply.Status.DONE, Reply.read(second.handle(again)).status());
    Reply reply = Reply.read(first.handle(next()));
    assertEquals(Reply.Status.WRONG, reply.status());
    assertTrue(reply.words().startsWith("a write was done twice"), reply.words());
  }

  @Test
  void aWriteThatIsOlderThanTheLastOneIsRefused() throws Exception {
    join();
    byte[] old = nextWrite();
    member.take(first.handle(old));
    member.take(first.handle(nextWrite()));
    assertEquals(Reply.Status.REFUSED, Reply.read(second.handle(old)).status());
  }

  @Test
  void aMemberThatTheTablesHaveLostIsReported() throws Exception {
    join();
    member.take(first.handle(nextWrite()));
    execute("delete from results");
    Reply reply = Reply.read(first.handle(nextWrite()));
    assertEquals(Reply.Status.WRONG, reply.status(), reply.words());
  }

  @Test
  void aReplyToAnotherRequestIsRefusedByItsMember() throws Exception {
    join();
    byte[] earlier = first.handle(next());
    member.take(earlier);
    next();
    assertThrows(IllegalArgumentException.class, () -> member.take(earlier));
  }

  @Test
  void bytesThatAreNoRequestAreRefused() throws Exception {
    join();
    byte[] request = next();
    byte[] cut = java.util.Arrays.copyOf(request, 20);
    byte[] unknown = request.clone();
    unknown[1] = 100;
    byte[] version = request.clone();
    version[0] = 9;
    for (byte[] bytes : new byte[][] {{}, cut, unknown, version, new byte[1 << 16]}) {
      Reply reply = Reply.read(first.handle(bytes));
      assertEquals(Reply.Status.REFUSED, reply.status(), reply.words());
    }
  }

  @Test
  void oneOfTwoMiddleTiersThatStartTogetherFillsTheTables() throws Exception {
    CompletableFuture<Void> other =
        CompletableFuture.runAsync(
            () -> {
              try {
                second.prepare();
              } catch (SQLException thrown) {
                throw new IllegalStateException(thrown);
              }
            });
    first.prepare();
    other.get();
    join();
    assertEquals("", first.contradiction());
  }

  @Test
  void aReplyHasAtLeastTheBytesThatTheRequestHas() throws Exception {
    join();
    assertEquals(1024, first.handle(member.next(1024, Trace.NONE)).length);
  }
}
