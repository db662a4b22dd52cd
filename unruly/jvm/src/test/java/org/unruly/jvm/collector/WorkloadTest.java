package org.unruly.jvm.collector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.unruly.jvm.Options;
import org.unruly.jvm.Problem;

class WorkloadTest {
  private static final Set<String> KEYS = Set.of("live", "occupancy", "cores");

  private static Workload of(String live, String occupancy) {
    return Workload.of(new Options(List.of("live=" + live, "occupancy=" + occupancy, "cores=2"), KEYS));
  }

  @Test
  void aHeapSmallerThanTheLiveSizeIsRefused() {
    long heapBytes = Runtime.getRuntime().maxMemory();
    String told = assertThrows(Problem.class, () -> of(Long.toString(heapBytes), "0.6")).getMessage();
    assertTrue(told.startsWith("collector: live is " + heapBytes + " bytes in a heap of " + heapBytes + "; wanted a heap larger"), told);
  }

  @Test
  void anOldGenerationSmallerThanTheLiveSizeIsRefused() {
    Workload workload = new Workload(384 << 20, 0.6, 2);
    workload.check(512 << 20, 385 << 20);
    String told = assertThrows(Problem.class, () -> workload.check(512 << 20, 341 << 20)).getMessage();
    assertTrue(told.contains("the old generation has 357564416") && told.endsWith("-Xmn64m"), told);
  }

  @Test
  void anOccupancyOverAllCoresIsRefused() {
    String told = assertThrows(Problem.class, () -> of("1048576", "1.2")).getMessage();
    assertEquals("options: occupancy is 1.2; wanted a share above 0 and at most 1; hint: occupancy=0.6", told);
  }

  @Test
  void theTargetIsTheShareOfAllCores() {
    assertEquals(1.2e9, of("1048576", "0.6").targetNs(), 1);
  }
}
