package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.handler.codec.DecoderException;
import java.util.List;
import org.unruly.jvm.Problem;
import org.unruly.jvm.foreign.ForeignRecord;
import org.unruly.jvm.foreign.Kind;

/** A connection of the agent: its first record says which peer, the others what to ask of it and when. */
final class AskingConnection extends ByteToMessageDecoder {
  private final AgentTerms terms;
  private PeerConnection peer;

  AskingConnection(AgentTerms terms) {
    this.terms = terms;
  }

  @Override
  public void channelRead(ChannelHandlerContext context, Object bytes) throws Exception {
    super.channelRead(context, bytes);
    // all that came with one read is there: what is due of it is asked in one go
    if (peer != null) {
      peer.askDue();
    }
  }

  @Override
  protected void decode(ChannelHandlerContext context, ByteBuf bytes, List<Object> none) {
    if (bytes.readableBytes() < ForeignRecord.BYTES) {
      return;
    }
    try {
      take(context, ForeignRecord.read(bytes.nioBuffer(bytes.readerIndex(), ForeignRecord.BYTES)));
      bytes.skipBytes(ForeignRecord.BYTES);
    } catch (Problem thrown) {
      // or it would be looked at once more at the connection's end
      bytes.skipBytes(bytes.readableBytes());
      throw thrown;
    }
  }

  private void take(ChannelHandlerContext context, ForeignRecord record) {
    long[] fields = record.fields();
    if (record.kind() == Kind.ROUTE && peer == null) {
      Answers answers = new Answers(context.channel());
      peer = new PeerConnection(Peer.of(fields), terms, answers, context.channel().eventLoop());
      peer.connect();
    } else if (record.kind() == Kind.ROUTE) {
      String wrong = "a connection has a second route";
      throw new Problem("agent", wrong, "one connection for each peer", "see unruly/schema/foreign.md");
    } else if (record.kind() == Kind.ASK && peer == null) {
      throw new Problem("agent", "an ask came before a route", "the route first", "send kind 32, then kind 33");
    } else if (record.kind() == Kind.ASK) {
      peer.add(new Ask(fields[0], fields[1], (int) fields[2] & 0xFF));
    }
  }

  /** Who asks and does not listen to the answers would fill the memory with them. */
  @Override
  public void channelWritabilityChanged(ChannelHandlerContext context) {
    if (!context.channel().isWritable()) {
      System.err.println("agent: the answers are not read; wanted an agent that reads them; hint: see what it told");
      context.close();
    }
  }

  @Override
  public void channelInactive(ChannelHandlerContext context) throws Exception {
    super.channelInactive(context);
    if (peer != null) {
      peer.close();
    }
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext context, Throwable thrown) {
    if (thrown instanceof DecoderException && thrown.getCause() != null) {
      System.err.println(thrown.getCause().getMessage());
    }
    context.close();
  }
}
