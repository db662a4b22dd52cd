package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import org.unruly.jvm.foreign.ForeignRecord;
import org.unruly.jvm.foreign.Kind;

/** What the agent is told of one peer, in batches; on the event loop of its connection. */
final class Answers {
  private final Channel connection;
  private ByteBuf batch;

  Answers(Channel connection) {
    this.connection = connection;
  }

  void sent(long ticket, long sentNs, int bytes) {
    tell(Kind.SENT, ticket, sentNs, bytes);
  }

  void reply(long ticket, long receivedNs, Stamps server, int bytes) {
    tell(Kind.REPLY, ticket, receivedNs, server.kernelReceivedNs(), server.receivedNs(), server.sentNs(), bytes);
  }

  void failed(long ticket, Failure failure) {
    tell(Kind.FAILED, ticket, failure.code());
  }

  /** Sends what was told since the last time. */
  void flush() {
    if (batch != null) {
      connection.writeAndFlush(batch);
      batch = null;
    }
  }

  private void tell(int kind, long... fields) {
    if (batch == null) {
      batch = connection.alloc().ioBuffer();
    }
    int at = batch.writerIndex();
    batch.ensureWritable(ForeignRecord.BYTES);
    ForeignRecord.write(batch.nioBuffer(at, ForeignRecord.BYTES), kind, fields, 0, fields.length);
    batch.writerIndex(at + ForeignRecord.BYTES);
  }
}
