// Measures pgjdbc as tests/drivers/run.sh explains: Jdbc.java URL.
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

class Jdbc {
  static void run(Connection c, String sql) throws SQLException {
    try (var statement = c.createStatement()) {
      statement.execute(sql);
    }
  }

  static String attempt(Connection c, PreparedStatement statement, boolean inside) throws SQLException {
    c.setAutoCommit(!inside);
    String result = "ok";
    try {
      if (inside) run(c, "SELECT 1");
      statement.setInt(1, 1);
      try (ResultSet rows = statement.executeQuery()) {
        while (rows.next()) rows.getObject(1);
      }
    } catch (SQLException error) {
      result = error.getSQLState();
    }
    if (inside) c.rollback();
    c.setAutoCommit(true);
    return result;
  }

  static void measure(String url, String mode, String event, boolean inside) throws SQLException {
    String sql = System.getenv(event + "_QUERY").replace("$1", "?");
    String full = url + (mode.contains("=") ? "&" + mode : "");
    try (Connection other = DriverManager.getConnection(url); Connection c = DriverManager.getConnection(full)) {
      run(other, System.getenv("RESET_SQL"));
      try (PreparedStatement statement = c.prepareStatement(sql)) {
        for (int i = 0; i < 10; ++i) {
          if (!attempt(c, statement, false).equals("ok")) throw new IllegalStateException("before the event");
        }
        run(other, System.getenv(event + "_SQL"));
        StringBuilder results = new StringBuilder();
        for (int i = 0; i < 3; ++i) results.append(i == 0 ? "" : " ").append(attempt(c, statement, inside));
        System.out.printf("pgjdbc %s|%s|%s|%s|%s%n", c.getMetaData().getDriverVersion(), mode, event,
            inside ? "inside" : "outside", results);
      }
    }
  }

  public static void main(String[] arguments) throws SQLException {
    for (String mode : new String[] {"default (prepareThreshold 5)", "autosave=conservative", "prepareThreshold=0"}) {
      for (String event : new String[] {"ADD", "SWITCH"}) {
        for (boolean inside : new boolean[] {false, true}) measure(arguments[0], mode, event, inside);
      }
    }
  }
}
