package org.unruly.jvm.agent;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.unix.DomainSocketAddress;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import org.unruly.jvm.Ending;
import org.unruly.jvm.Problem;

/** The socket at which the agent asks: a connection for each peer. */
public final class Asking implements AutoCloseable {
  /** Answers that the agent has not read, bytes: some 170,000, which is seconds of them. */
  private static final WriteBufferWaterMark UNREAD = new WriteBufferWaterMark(8 << 20, 16 << 20);

  private static final long PATIENCE_MS = 1000;

  private final Path path;
  private final ChannelGroup channels;

  private Asking(Path path, ChannelGroup channels) {
    this.path = path;
    this.channels = channels;
  }

  /** Listens; the socket's file is deleted at the end, also of the process. */
  public static Asking open(AgentTerms terms, EventLoopGroup loop) {
    if (Files.exists(terms.asking(), LinkOption.NOFOLLOW_LINKS)) {
      // Netty would delete it, whatever it is
      throw notOpened(terms.asking(), "something is there", null);
    }
    ChannelGroup channels = new DefaultChannelGroup(loop.next(), true);
    ServerBootstrap bootstrap =
        new ServerBootstrap()
            .group(loop)
            .channel(EpollServerDomainSocketChannel.class)
            .childOption(ChannelOption.WRITE_BUFFER_WATER_MARK, UNREAD)
            .childHandler(
                new ChannelInitializer<Channel>() {
                  @Override
                  protected void initChannel(Channel connection) {
                    channels.add(connection);
                    connection.pipeline().addLast(new AskingConnection(terms));
                  }
                });
    ChannelFuture bound = bootstrap.bind(new DomainSocketAddress(terms.asking().toFile())).awaitUninterruptibly();
    if (!bound.isSuccess()) {
      throw notOpened(terms.asking(), bound.cause().getMessage(), bound.cause());
    }
    Asking asking = new Asking(terms.asking(), channels);
    Ending.atEnd(asking::delete);
    channels.add(bound.channel());
    return asking;
  }

  @Override
  public void close() {
    channels.close().awaitUninterruptibly(PATIENCE_MS);
    delete();
  }

  private static Problem notOpened(Path path, String why, Throwable thrown) {
    String wrong = path + " cannot be listened at: " + why;
    return new Problem("asking", wrong, "a path of at most 107 bytes where nothing is", "a folder of your own", thrown);
  }

  private void delete() {
    try {
      // an agent that was killed cannot delete the folder that it made for this socket
      if (Files.deleteIfExists(path) && path.getParent() != null) {
        Files.delete(path.getParent());
      }
    } catch (IOException thrown) {
      // somebody has something else there
    }
  }
}
