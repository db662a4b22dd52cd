package org.unruly.jvm;

/** What ends a run: told in the house's form, {@code where: what is wrong; what was wanted; hint: next step}. */
public final class Problem extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /**
   * A problem in words.
   *
   * @param where the part or option it is about
   * @param wrong what is wrong, with the value
   * @param wanted what was wanted
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
