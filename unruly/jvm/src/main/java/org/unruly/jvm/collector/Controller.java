package org.unruly.jvm.collector;

/**
 * At which rate elements are to be replaced, so that the CPU time used keeps to its target.
 *
 * <p>A rate cannot be set from the last interval's use: a collector works in bursts, seconds after the garbage was
 * made. The cost of an element, collection included, is averaged over some seconds; the target divided by it is the
 * rate. CPU time used too much or too little so far is paid back within about a second. It reads no clock: its caller
 * passes measurements.
 */
final class Controller {
  /** Time over which the cost of an element is averaged, ns. */
  private static final double COST_NS = 8e9;

  /** Time within which a debt is paid back, ns. */
  private static final double DEBT_NS = 1e9;

  /** A debt is never more than this time's use: on a busy host it could not be paid, and would later burst. */
  private static final double DEBT_NS_MAX = 4e9;

  /** Before anything is measured an element is taken to cost this, ns; soon outweighed. */
  private static final double GUESS_NS = 3000;

  private static final double GUESS_ELEMENTS = 10_000;

  private final double target;
  private double usedNs = GUESS_NS * GUESS_ELEMENTS;
  private double replaced = GUESS_ELEMENTS;
  private double debtNs;

  /** Creates a controller that uses this CPU time each second, ns. */
  Controller(double targetNs) {
    target = targetNs / 1e9;
  }

  /** Returns the rate before the first measurement, elements each second. */
  double firstRateHz() {
    return target * 1e9 / GUESS_NS;
  }

  /**
   * The rate from now on, elements each second.
   *
   * @param elapsedNs since the last time
   * @param moreUsedNs CPU time used meanwhile
   * @param moreReplaced elements replaced meanwhile
   */
  double rateHz(long elapsedNs, long moreUsedNs, long moreReplaced) {
    double kept = Math.exp(-elapsedNs / COST_NS);
    usedNs = usedNs * kept + moreUsedNs;
    replaced = replaced * kept + moreReplaced;
    double mostNs = target * DEBT_NS_MAX;
    debtNs = Math.max(-mostNs, Math.min(mostNs, debtNs + target * elapsedNs - moreUsedNs));
    double share = Math.max(0, target + debtNs / DEBT_NS);
    double costNs = Math.max(1, usedNs / Math.max(1, replaced));
    return share * 1e9 / costNs;
  }
}
