package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import org.unruly.jvm.agent.Codec.Stamps;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;

/** Reports the outcomes of requests to the agent in batches, on the event loop of its connection. */
final class OutcomeReporter {
  private final Channel connection;
  private ByteBuf batch;

  OutcomeReporter(Channel connection) {
    this.connection = connection;
  }

  void sent(long ticket, long sentNs, int bytes) {
    report(Kind.SENT, ticket, sentNs, bytes);
  }

  void reply(long ticket, long receivedNs, Stamps server, int bytes) {
    report(Kind.REPLY, ticket, receivedNs, server.kernelReceivedNs(), server.receivedNs(), server.sentNs(), bytes);
  }

  void failed(long ticket, Failure failure) {
    report(Kind.FAILED, ticket, failure.code());
  }

  /** Sends the outcomes collected since the last call. */
  void flush() {
    if (batch != null) {
      connection.writeAndFlush(batch);
      batch = null;
    }
  }

  private void report(int kind, long... fields) {
    if (batch == null) {
      batch = connection.alloc().ioBuffer();
    }
    int at = batch.writerIndex();
    batch.ensureWritable(ForeignRecord.BYTES);
    ForeignRecord.write(batch.nioBuffer(at, ForeignRecord.BYTES), kind, fields, 0, fields.length);
    batch.writerIndex(at + ForeignRecord.BYTES);
  }

  /** The reason why a request got no reply. The codes are in {@code unruly/schema/foreign.md}. */
  enum Failure {
    /** There was no connection. */
    DISCONNECTED(1),
    /** The peer's host refuses connections. */
    REFUSED(2),
    /** The connection broke, or the peer closed it. */
    RESET(3),
    /** The peer sent bytes that are not a reply of this run. */
    PROTOCOL(4),
    /** The kernel did not take the message. */
    SEND(5);

    private final int code;

    Failure(int code) {
      this.code = code;
    }

    int code() {
      return code;
    }
  }
}
