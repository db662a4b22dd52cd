package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.unruly.jvm.Problem;
import org.unruly.jvm.agent.Disk.DiskRing;

class DiskRingTest {
  @TempDir Path folder;

  @Test
  void itIsWrittenRoundAndRoundAndHasNoName() throws IOException {
    Path path = folder.resolve("ring");
    try (DiskRing ring = DiskRing.open(path, 100)) {
      assertFalse(Files.exists(path));
      for (long expected : new long[] {40, 80, 40, 80, 40}) {
        ring.write(ByteBuffer.allocate(40));
        assertEquals(expected, ring.offset());
      }
    }
  }

  @Test
  void aFolderThatIsNotThereIsTold() {
    Path path = folder.resolve("none/ring");
    Problem told = assertThrows(Problem.class, () -> DiskRing.open(path, 100));
    assertTrue(told.getMessage().startsWith("disk: " + path + " cannot be made "), told.getMessage());
  }
}
