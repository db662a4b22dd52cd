package org.unruly.jvm.agent;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Set;
import org.unruly.jvm.Problem;

/**
 * A file of bounded size that is written round and round.
 *
 * <p>It is made once at its full length, so that a sync writes data and not a new length. Its name is gone as soon as
 * it is open: however the process ends, nothing is left behind.
 */
final class DiskRing implements AutoCloseable {
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
