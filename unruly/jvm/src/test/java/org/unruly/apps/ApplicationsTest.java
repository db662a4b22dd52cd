package org.unruly.apps;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.unruly.jvm.Problem;

/**
 * The applications on a database in memory. They run on MariaDB by hand, where %s in the URL stands
 * for the name of a new database:
 *
 * <pre>{@code
 * mvn -o -f unruly/jvm/pom.xml -Dtest=ApplicationsTest verify
 *     -Dapps.url='jdbc:mariadb://127.0.0.1:PORT/%s?user=U&password=P&createDatabaseIfNotExist=true'
 *     -Dmaven.test.additionalClasspath=$HOME/.m2/.../mariadb-java-client-3.5.1.jar
 * }</pre>
 */
class ApplicationsTest {
  private static final String URL =
      System.getProperty(
          "apps.url", "jdbc:h2:mem:%s;MODE=MariaDB;DB_CLOSE_DELAY=-1;LOCK_TIMEOUT=10000");

  private static final int MEMBERS = 4;
  private static final int OPERATIONS = 500;
  private static final int MORE_OPERATIONS = 5_000;
  private static final int TRIES = 50;
  private static final int REPLY_MOST = 4_000;
  private static final AtomicInteger DATABASES = new AtomicInteger();
  private static final AtomicInteger RETRIES = new AtomicInteger();

  /**
   * A contradiction to plant.
   *
   * @param says a part of the sentence about it
   * @param statement plants it
   */
  private record Plant(String says, String statement) {}

  /**
   * What the tests know of an application.
   *
   * @param live counts the rows that operations look through
   * @param most the most of them
   * @param recycled counts the recycled rows; 0 if nothing was
   */
  private record Known(
      Members members, String live, long most, String recycled, List<Plant> plants) {}

  private static final Map<String, Known> KNOWN =
      Map.of(
          "board",
          new Known(
              Board.MEMBERS,
              "select count(*) from threads",
              2_000,
              "select count(*) from posts where outcome = 'stored'",
              List.of(
                  new Plant("comments, but", "update threads set comments = 9 where story = 5"),
                  new Plant("comments, but", "delete from comments where id = 77"),
                  new Plant("has the rating", "update comments set rating = 4 where id = 77"),
                  new Plant(
                      "ratings are stored",
                      "insert into posts(member, number, outcome)"
                          + " select member, -1, 'rated' from posters where member = 1"))),
          "su-duel-ku",
          new Known(
              SuDuelKu.MEMBERS,
              "select count(*) from duel_cells",
              SuDuelKu.DUELS * 81,
              "select sum(turn) from duels",
              List.of(
                  new Plant(
                      "has the digit",
                      "update duel_cells set digit = solution + case when solution > 8 then -1"
                          + " else 1 end where duel = 1 and given = 1 and cell > 40"),
                  new Plant(
                      "filled cells, but has", "update duels set filled = filled + 1 where id = 2"),
                  new Plant(
                      "right guesses",
                      "update guesses set outcome = 'wrong' where outcome = 'right'"),
                  new Plant("wins in", "update duelists set wins = wins + 1 where member = 1"))),
          "blackjack",
          new Known(
              Blackjack.MEMBERS,
              "select count(*) from house",
              1,
              "select count(*) from plays where outcome = 'granted'",
              List.of(
                  new Plant("chips, of", "update house set chips = chips + 1"),
                  new Plant("chips, of", "update players set stake = stake + 1 where member = 1"),
                  new Plant(
                      "the plays make",
                      "update players set chips = chips + case member when 1 then 1 else -1 end"
                          + " where member in (1, 2)"))),
          "ftex",
          new Known(
              Ftex.MEMBERS,
              "select count(*) from offers",
              10 * 2 * Ftex.OFFERS_MOST,
              "select count(*) from deals where outcome = 'traded'",
              List.of(
                  new Plant("cash, of", "update traders set cash = cash + 1 where member = 1"),
                  new Plant("shares of stock", "update holdings set shares = 99 where stock = 3"),
                  new Plant("is offered for", "update offers set price = 1 where side = -1"),
                  new Plant(
                      "cash and",
                      "update holdings set shares = shares + case member when 1 then 9000 else"
                          + " -9000 end where stock = 3 and member in (1, 2)"),
                  new Plant("a volume of", "update stocks set volume = 3 where id = 7"))),
          "ejbay",
          new Known(
              Ejbay.MEMBERS,
              "select count(*) from auctions where is_open = 1",
              Ejbay.CATEGORIES * Ejbay.OPEN_OF_A_CATEGORY,
              "select count(*) from auctions where is_open = 0",
              List.of(
                  new Plant("has the price", "update auctions set price = 7000 where id = 3"),
                  new Plant("has the price", "update auctions set bids = bids + 1 where id = 3"),
                  new Plant("is led by", "update auctions set leader = 99 where bids > 0"),
                  new Plant("open, of", "update auctions set is_open = 0 where id > 190"))),
          "mafia",
          new Known(
              Mafia.MEMBERS,
              "select count(*) from characters",
              Mafia.GAMES * 8,
              "select sum(turn) from mafia_games",
              List.of(
                  new Plant("were cast", "update characters set votes = votes + 1 where game = 2"),
                  new Plant("were cast", "update deeds set target = 7 - target"),
                  new Plant("votes, but its", "update mafia_games set votes = 9 where id = 2"),
                  new Plant(
                      "belong to the mafia", "update characters set is_mafia = 1 where game = 2"))),
          "parkn-park",
          new Known(
              ParknPark.MEMBERS,
              "select count(*) from cars",
              ParknPark.PARKS * ParknPark.CAPACITY,
              "select count(*) from visits where outcome = 'full'",
              List.of(
                  new Plant("places occupied after", "update car_parks set exits = exits + 1"),
                  new Plant("places occupied after", "update car_parks set capacity = 1"),
                  new Plant("cars", "delete from cars where park = 3"),
                  new Plant(
                      "after the first cars",
                      "update car_parks set entries = entries + 1, exits = exits + 1"),
                  new Plant(
                      "cars parked", "update cars set member = 1 where park = 3"))),
          "ticket-center",
          new Known(
              TicketCenter.MEMBERS,
              "select count(*) from bookings",
              TicketCenter.ROUTES * TicketCenter.BUSES_OF_A_ROUTE * 40,
              "select count(*) from departures where is_open = 0",
              List.of(
                  new Plant("tickets: seat", "update tickets set seat = 3 where outcome = 'bought'"),
                  new Plant("bookings: seat", "update bookings set seat = 3"),
                  new Plant("have tickets", "update departures set sold = sold + 1 where id = 3"),
                  new Plant("have bookings", "delete from bookings"))));

  static List<String> names() {
    return Applications.names();
  }

  /** Returns the URL of a database with the tables of an application and its first members. */
  private static String database(Application application) throws SQLException {
    String name = "apps" + ProcessHandle.current().pid() + "x" + DATABASES.incrementAndGet();
    String url = String.format(URL, name);
    try (Connection database = open(url)) {
      // the second time adds nothing
      for (int time = 0; time < 2; time++) {
        for (String table : application.tables()) {
          Sql.change(database, table);
        }
        application.fill(database);
        for (long member = 1; member <= MEMBERS; member++) {
          application.join(database, member);
        }
        database.commit();
      }
    }
    return url;
  }

  private static Connection open(String url) throws SQLException {
    Connection database = DriverManager.getConnection(url);
    database.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
    database.setAutoCommit(false);
    return database;
  }

  /** Runs random operations of one member; fails if a tally is not the expected one. */
  private static Tally run(
      Application application,
      List<Operation> operations,
      String url,
      long member,
      int count,
      long first)
      throws SQLException {
    Random random = new Random(member * 1_000 + first);
    int weights = operations.stream().mapToInt(Operation::weight).sum();
    try (Connection database = open(url)) {
      Tally expected = application.tally(database, member);
      for (long number = first; number < first + count; number++) {
        int left = random.nextInt(weights);
        int place = 0;
        while (left >= operations.get(place).weight()) {
          left -= operations.get(place++).weight();
        }
        Operation operation = operations.get(place);
        long[] arguments = operation.choice().arguments(random);
        String reply = perform(operation, database, member, number, arguments);
        assertTrue(!reply.isEmpty() && reply.length() <= REPLY_MOST, operation.name() + reply);
        expected = operation.isWrite() ? expected.with(number) : expected;
        assertEquals(expected, application.tally(database, member), operation.name());
        database.commit();
      }
      return expected;
    }
  }

  private static String perform(
      Operation operation, Connection database, long member, long number, long[] arguments)
      throws SQLException {
    for (int tries = 1; ; tries++) {
      try {
        String reply = operation.action().perform(database, member, number, arguments);
        database.commit();
        return reply;
      } catch (SQLException thrown) {
        database.rollback();
        String state = String.valueOf(thrown.getSQLState());
        if (tries == TRIES || !(state.startsWith("40") || state.equals("HYT00"))) {
          throw thrown;
        }
        RETRIES.incrementAndGet();
      }
    }
  }

  private static void runAll(Application application, String url) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(MEMBERS);
    List<Future<Tally>> done = new ArrayList<>();
    for (long member = 1; member <= MEMBERS; member++) {
      long own = member;
      List<Operation> operations = application.operations();
      done.add(threads.submit(() -> run(application, operations, url, own, OPERATIONS, 1)));
    }
    threads.shutdown();
    for (Future<Tally> run : done) {
      assertTrue(run.get().writes() > 0);
    }
  }

  @ParameterizedTest
  @MethodSource("names")
  void membersAtOnceContradictNothing(String name) throws Exception {
    Application application = Applications.of(name);
    String url = database(application);
    RETRIES.set(0);
    runAll(application, url);
    System.err.println(name + ": " + RETRIES + " retries");
    try (Connection database = open(url)) {
      assertEquals(Optional.empty(), application.contradiction(database));
      assertEquals(new Tally(0, 0), application.tally(database, Long.MIN_VALUE));
    }
  }

  @ParameterizedTest
  @MethodSource("names")
  void everyContradictionIsFound(String name) throws Exception {
    Application application = Applications.of(name);
    Known known = KNOWN.get(name);
    String url = database(application);
    runAll(application, url);
    try (Connection database = open(url)) {
      String history = known.members().history();
      String table = known.members().table();
      long row = Sql.number(database, "select max(id) from " + history + " where member = 1");
      Sql.change(database, "delete from " + history + " where id = ?", row);
      assertFound("member 1 counts", application, database);

      String copy = "(member, number) select member, number from " + history + " where id = ?";
      Sql.change(database, "insert into " + history + copy, row);
      assertFound("member 1 counts", application, database);

      long number = Sql.number(database, "select number from " + history + " where id = ?", row);
      String count = " set writes = writes + 1, write_sum = write_sum + ? where member = 1";
      Sql.change(database, "insert into " + history + copy, row);
      Sql.change(database, "update " + table + count, number);
      assertFound("was done 2 times", application, database);

      Sql.change(database, "insert into " + history + "(member, number) values(77, 1)");
      assertFound("has not joined", application, database);

      for (Plant plant : known.plants()) {
        assertTrue(Sql.change(database, plant.statement()) > 0, plant.statement());
        // keeps the tallies right if the plant added to the history
        Sql.change(
            database,
            "update "
                + table
                + " set writes = writes + 1, write_sum = write_sum - 1 where exists"
                + " (select 1 from "
                + history
                + " h where h.number = -1) and member = 1");
        assertFound(plant.says(), application, database);
      }
      assertEquals(Optional.empty(), application.contradiction(database));
    }
  }

  private static void assertFound(String says, Application application, Connection database)
      throws SQLException {
    String found = application.contradiction(database).orElse("nothing");
    database.rollback();
    assertTrue(found.contains(says), says + ": " + found);
  }

  @ParameterizedTest
  @MethodSource("names")
  void anyArgumentIsHandled(String name) throws Exception {
    Application application = Applications.of(name);
    String url = database(application);
    long number = 1;
    Tally expected = new Tally(0, 0);
    try (Connection database = open(url)) {
      for (long value : new long[] {Long.MIN_VALUE, -1, 0, Long.MAX_VALUE, 1L << 32}) {
        for (Operation operation : application.operations()) {
          long[] arguments = operation.choice().arguments(new Random(1));
          assertTrue(arguments.length <= Request.ARGUMENTS_MAX);
          Arrays.fill(arguments, value);
          perform(operation, database, 1, number, arguments);
          expected = operation.isWrite() ? expected.with(number) : expected;
          number++;
        }
      }
      assertEquals(expected, application.tally(database, 1));
      assertEquals(Optional.empty(), application.contradiction(database));
    }
  }

  @ParameterizedTest
  @MethodSource("names")
  void aLongRunRecyclesItsTables(String name) throws Exception {
    Application application = Applications.of(name);
    Known known = KNOWN.get(name);
    String url = database(application);
    runAll(application, url);
    try (Connection database = open(url)) {
      // only writes fill tables
      List<Operation> writes =
          application.operations().stream().filter(Operation::isWrite).toList();
      run(application, writes, url, 1, MORE_OPERATIONS, 1_000);
      long live = Sql.number(database, known.live());
      assertTrue(live <= known.most(), "live rows: " + live);
      assertTrue(Sql.number(database, known.recycled()) > 0, known.recycled());
      assertEquals(Optional.empty(), application.contradiction(database));
    }
  }

  @ParameterizedTest
  @MethodSource("names")
  void aWriteOfAStrangerFails(String name) throws Exception {
    Application application = Applications.of(name);
    try (Connection database = open(database(application))) {
      for (Operation operation : application.operations()) {
        if (operation.isWrite()) {
          long[] arguments = operation.choice().arguments(new Random(1));
          SQLException thrown =
              assertThrows(
                  SQLException.class,
                  () -> operation.action().perform(database, 99, 1, arguments));
          assertTrue(thrown.getMessage().contains("member 99 has not joined"));
          database.rollback();
        }
      }
      assertEquals(Optional.empty(), application.contradiction(database));
    }
  }

  @ParameterizedTest
  @MethodSource("names")
  void fillingTwiceAddsNothing(String name) throws Exception {
    Application application = Applications.of(name);
    try (Connection database = open(database(application))) {
      String live = KNOWN.get(name).live();
      long before = Sql.number(database, live);
      for (String table : application.tables()) {
        Sql.change(database, table);
      }
      application.fill(database);
      application.join(database, 1);
      assertEquals(before, Sql.number(database, live));
      assertEquals(Optional.empty(), application.contradiction(database));
    }
  }

  @Test
  void mostOperationsRead() {
    for (String name : names()) {
      List<Operation> operations = Applications.of(name).operations();
      assertTrue(operations.size() >= 5 && operations.size() <= 8, name);
      double all = operations.stream().mapToInt(Operation::weight).sum();
      double reads =
          operations.stream().filter(it -> !it.isWrite()).mapToInt(Operation::weight).sum();
      assertTrue(reads / all >= 0.6 && reads / all <= 0.8, name + " " + reads / all);
    }
  }

  @Test
  void anUnknownNameListsTheKnownOnes() {
    Problem problem = assertThrows(Problem.class, () -> Applications.of("chess"));
    assertTrue(problem.getMessage().contains("'chess'"), problem.getMessage());
    assertTrue(problem.getMessage().contains("board, su-duel-ku"), problem.getMessage());
  }
}
