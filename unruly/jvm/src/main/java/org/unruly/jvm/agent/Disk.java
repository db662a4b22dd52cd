package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.unruly.jvm.Problem;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.Service.ReplyRoute;

/**
 * Replies that are on the disk before they are sent.
 *
 * <p>One thread writes and syncs, as a log would; requests wait for it in line.
 */
final class Disk implements AutoCloseable {
  /** Minutes of work for any disk: whose request finds no room is turned away. */
  private static final int JOBS_MAX = 1 << 16;

  private static final long TIMEOUT_MS = 200;

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
  boolean offer(ReplyRoute route, Head head, long receivedNs) {
    return jobs.offer(new Job(route, head, receivedNs));
  }

  @Override
  public void close() {
    thread.interrupt();
    try {
      TimeUnit.MILLISECONDS.timedJoin(thread, TIMEOUT_MS);
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

  private record Job(ReplyRoute route, Head head, long receivedNs) {}

  /**
   * A file of bounded size that is written round and round.
   *
   * <p>It is made once at its full length, so that a sync writes data and not a new length. Its name is gone as soon as
   * it is open: however the process ends, nothing is left behind.
   */
  static final class DiskRing implements AutoCloseable {
    private static final int FILLING_BYTES = 1 << 20;

    private final FileChannel file;
    private final long bytesMax;
    private long offset;

    private DiskRing(FileChannel file, long bytesMax) {
      this.file = file;
      this.bytesMax = bytesMax;
    }

    /** Makes the file at its full length. */
    static DiskRing open(Path path, long bytesMax) {
      try {
        return new DiskRing(made(path, bytesMax), bytesMax);
      } catch (IOException thrown) {
        String wrong = path + " cannot be made with " + bytesMax + " bytes: " + thrown;
        String wanted = "a file in a folder that is there, with so much room";
        throw new Problem("disk", wrong, wanted, "another disk=, or less disk-bytes=", thrown);
      }
    }

    private static FileChannel made(Path path, long bytesMax) throws IOException {
      Set<OpenOption> options =
          Set.of(StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING, StandardOpenOption.WRITE);
      FileChannel file = FileChannel.open(path, options);
      try {
        Files.delete(path);
        fill(file, bytesMax);
        return file;
      } catch (IOException thrown) {
        file.close();
        throw thrown;
      }
    }

    /** Java cannot ask for room without writing. */
    private static void fill(FileChannel file, long bytesMax) throws IOException {
      ByteBuffer zeroes = ByteBuffer.allocateDirect(FILLING_BYTES);
      for (long left = bytesMax; left > 0; ) {
        zeroes.clear().limit((int) Math.min(FILLING_BYTES, left));
        left -= file.write(zeroes);
      }
      file.force(true);
    }

    /** Writes the bytes and waits until they are on the disk. */
    void write(ByteBuffer bytes) throws IOException {
      if (offset + bytes.remaining() > bytesMax) {
        offset = 0;
      }
      while (bytes.hasRemaining()) {
        offset += file.write(bytes, offset);
      }
      file.force(false);
    }

    /** Where the next bytes go. */
    long offset() {
      return offset;
    }

    @Override
    public void close() {
      try {
        file.close();
      } catch (IOException thrown) {
        // it has no name, and its room is free all the same
      }
    }
  }
}
