package org.unruly.jvm;

/** An error that ends a run. Its text is {@code where: fault; wanted expectation; hint: next step}. */
public final class Problem extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /**
   * Creates an error from its parts.
   *
   * @param where the part or option it is about
   * @param wrong the fault, with the value
   * @param wanted the expected value or state
   * @param hint the next step
   */
  public Problem(String where, String wrong, String wanted, String hint) {
    super(where + ": " + wrong + "; wanted " + wanted + "; hint: " + hint);
  }

  /** The same, with what brought it about. */
  public Problem(String where, String wrong, String wanted, String hint, Throwable cause) {
    this(where, wrong, wanted, hint);
    initCause(cause);
  }
}
