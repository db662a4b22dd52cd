package org.unruly.jvm.watch;

/** What a competing load has done so far. */
public interface Competition {
  /** CPU time that it used, ns, the collector's included. */
  long cpuNs();

  /** Elements that it dropped and added. */
  long replaced();
}
