package org.unruly.jvm.collector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** On a planted virtual machine, whose collector works in bursts, and on virtual time. */
class ControllerTest {
  private static final long STEP_NS = 100_000_000;
  private static final double CORES = 2;

  /** A JVM with a CPU cost of an element, a number of elements between collections, and a CPU cost of a collection. */
  private record Machine(double elementNs, double elementsBetween, double collectionNs) {}

  private static double[] usedNs(Machine machine, double target, int steps) {
    Controller controller = new Controller(target * CORES * 1e9);
    double rateHz = controller.firstRateHz();
    double garbage = 0;
    double owedNs = 0;
    double[] used = new double[steps];
    for (int step = 0; step < steps; step++) {
      double roomNs = CORES * STEP_NS;
      double collectedNs = Math.min(owedNs, roomNs);
      owedNs -= collectedNs;
      double elements = Math.min(rateHz * STEP_NS / 1e9, (roomNs - collectedNs) / machine.elementNs());
      garbage += elements;
      if (garbage > machine.elementsBetween()) {
        garbage -= machine.elementsBetween();
        owedNs += machine.collectionNs();
      }
      used[step] = collectedNs + elements * machine.elementNs();
      rateHz = controller.rateHz(STEP_NS, (long) used[step], (long) elements);
    }
    return used;
  }

  @ParameterizedTest
  @CsvSource({
    "500, 50000, 5000000", // young collections only
    "500, 500000, 600000000", // and a long one each second or so
    "3000, 100000, 300000000",
    "200, 2000000, 1500000000",
  })
  void theMeanUseKeepsToTheTargetWithinTwoPoints(double elementNs, double elementsBetween, double collectionNs) {
    for (double target : new double[] {0.2, 0.6, 0.8}) {
      double[] used = usedNs(new Machine(elementNs, elementsBetween, collectionNs), target, 6_100);
      double sumNs = 0;
      for (int step = 100; step < 6_100; step++) {
        sumNs += used[step];
      }
      assertEquals(target, sumNs / (6_000 * CORES * STEP_NS), 0.02);
    }
  }

  @ParameterizedTest
  @CsvSource({"0.6"})
  void aHostThatWasBusyIsNotBurstUponLater(double target) {
    Controller controller = new Controller(target * 1e9);
    for (int step = 0; step < 600; step++) {
      // a minute in which nearly nothing could be used
      controller.rateHz(STEP_NS, 1_000_000, 1_000);
    }
    // the target, and the greatest debt, that of four seconds, paid back within one
    assertTrue(controller.rateHz(STEP_NS, 1_000_000, 1_000) <= 5.1 * target * 1e9 / 1_000);
  }
}
