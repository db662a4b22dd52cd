package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * Replies that are on the disk before they are sent.
 *
 * <p>One thread writes and syncs, as a log would; requests wait for it in line.
 */
final class Disk implements AutoCloseable {
  /** Minutes of work for any disk: whose request finds no room is turned away. */
  private static final int JOBS_MAX = 1 << 16;

  private static final long PATIENCE_MS = 200;

  private final Service service;
  private final DiskRing ring;
  private final BlockingQueue<Job> jobs = new ArrayBlockingQueue<>(JOBS_MAX);
  private final Thread thread = new Thread(this::run, "disk");

  /** Begins to write; the ring is closed with it. */
  Disk(Service service, DiskRing ring) {
    this.service = service;
    this.ring = ring;
    thread.setDaemon(true);
    thread.start();
  }

  /** Puts a reply in the line; false when it is full. */
  boolean offer(Route route, Head head, long receivedNs) {
    return jobs.offer(new Job(route, head, receivedNs));
  }

  @Override
  public void close() {
    thread.interrupt();
    try {
      TimeUnit.MILLISECONDS.timedJoin(thread, PATIENCE_MS);
    } catch (InterruptedException thrown) {
      Thread.currentThread().interrupt();
    }
    ring.close();
  }

  private void run() {
    ByteBuf bytes = Unpooled.directBuffer();
    try {
      while (true) {
        Job job = jobs.take();
        service.writeReply(bytes.clear(), job.head, job.receivedNs);
        if (isWritten(bytes)) {
          job.route.channel().eventLoop().execute(() -> answer(job));
        }
      }
    } catch (InterruptedException | RejectedExecutionException thrown) {
      // the server is closed
    }
  }

  /** A write that fails leaves the request without a reply: its client sees a timeout. */
  private boolean isWritten(ByteBuf bytes) {
    try {
      ring.write(bytes.nioBuffer());
      return true;
    } catch (IOException thrown) {
      return false;
    }
  }

  /** On the event loop, so that the reply's stamp is of when it goes. */
  private void answer(Job job) {
    ByteBuf reply = job.route.channel().alloc().ioBuffer(service.codec().replyBytes(job.head.flags()));
    service.writeReply(reply, job.head, job.receivedNs);
    job.route.send(reply);
  }

  private record Job(Route route, Head head, long receivedNs) {}
}
