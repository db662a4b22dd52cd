package org.unruly.jvm.collector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class StructureTest {
  /** A link that led elsewhere would keep a dropped element alive. */
  @ParameterizedTest
  @ValueSource(longs = {1, 300, 4_096, 1_000_000})
  void linksLeadToWhatIsThereHoweverMuchWasReplaced(long liveBytes) {
    Structure structure = new Structure(liveBytes, 1);
    assertEquals(3 * structure.size(), structure.rightLinks());
    for (int replaced = 0; replaced < 3 * structure.size(); replaced++) {
      structure.replaceOne();
    }
    assertEquals(3 * structure.size(), structure.rightLinks());
  }

  /** What the heap has more of with it than without it, collected both times. */
  @ParameterizedTest
  @ValueSource(longs = {50_000_000})
  void itKeepsAliveAsManyBytesAsItWasTold(long liveBytes) {
    long beforeBytes = usedBytes();
    Structure structure = new Structure(liveBytes, 1);
    for (int replaced = 0; replaced < structure.size(); replaced++) {
      structure.replaceOne();
    }
    double ratio = (usedBytes() - beforeBytes) / (double) liveBytes;
    assertTrue(ratio > 0.97 && ratio < 1.03, ratio + " with " + structure.size() + " elements");
    structure.replaceOne();
  }

  private static long usedBytes() {
    System.gc();
    return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
  }
}
