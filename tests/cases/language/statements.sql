-- ok: a stream with a source
-- is: CREATE STREAM Sensors (id int, room string, temp double, ts timestamp) WITH ('source' = 'file', 'path' = 'in/', 'rate' = 10, 'strict' = TRUE)
CREATE STREAM Sensors (id INT, room STRING, temp DOUBLE, ts TIMESTAMP)
  WITH (source = 'file', PATH = 'in/', rate = 10, strict = true);

-- ok: types with arguments and brackets
-- is: CREATE STREAM s (a decimal(10,2), b array<array<int>>, c string, d decimal(10,0))
create stream s (a DECIMAL ( 10 , 2 ), b ARRAY<ARRAY<INT>>, c varchar(20), d decimal)

-- ok: keywords as column names
-- is: CREATE STREAM s (date date, timestamp timestamp, order int, end int, window string, key string)
CREATE STREAM s (date DATE, timestamp TIMESTAMP, order INT, end INT, window STRING, key STRING)

-- ok: quoted names with blanks, backquotes and keywords
CREATE STREAM `my stream` (`a ``b` INT, `select` INT) WITH ('kafka.group.id' = 'x', kafka.servers = 'h:1')

-- ok: derived stream
-- is: CREATE STREAM Hot AS SELECT id, temp FROM Sensors WHERE temp > 30
CREATE STREAM Hot AS SELECT id, temp FROM Sensors WHERE temp > 30;

-- ok: query with options and a sink
-- is: CREATE QUERY q WITH ('from' = 'earliest') AS SELECT a FROM s INTO ('sink' = 'parquet', 'path' = 'out/;')
CREATE QUERY q WITH (`from` = 'earliest') AS SELECT a FROM s INTO (sink = 'parquet', path = 'out/;')

-- ok: many statements, comments between and inside
-- is: DROP query a; DROP stream b CASCADE; SHOW streams; SHOW queries; SHOW rings; SHOW exchange; DESCRIBE s; DESCRIBE s.late
DROP QUERY a; /* one; /* nested; */ */ drop stream b cascade;; -- rest; of line
SHOW STREAMS; show queries; SHOW /* in */ RINGS; SHOW EXCHANGE; DESCRIBE s; desc s.late;

-- ok: regions
-- is: CREATE REGIONS Zones FROM 'zones.csv' WITH ('geometry' = 'wkt', 'planar' = TRUE); SHOW regions; DROP regions Zones CASCADE
CREATE REGIONS Zones FROM 'zones.csv' WITH (geometry = 'wkt', planar = true); show regions; DROP REGIONS Zones CASCADE

-- ok: a query is tried again
-- is: RESUME QUERY a
resume query a;

-- fail 1:8: expected QUERY
RESUME STREAM a

-- fail 1:27: regions come from a file
CREATE REGIONS Zones FROM z

-- fail 1:1: regions have no plan
EXPLAIN CREATE REGIONS Zones FROM 'z.csv'

-- ok: explain in all its forms
-- is: EXPLAIN SELECT a FROM s; EXPLAIN ANALYZE SELECT a FROM s; EXPLAIN SELECT a FROM s; EXPLAIN q
EXPLAIN SELECT a FROM s; EXPLAIN ANALYZE SELECT a FROM s;
EXPLAIN CREATE QUERY q AS SELECT a FROM s INTO (sink = 'x'); EXPLAIN q

-- ok: set for the engine, a stream and a companion
-- is: SET batch = 5; SET Sensors.rate = -1.5; SET Sensors.late.keep = 'a\'b'
SET Batch = 5; SET Sensors.rate = -1.5; SET Sensors.late.keep = 'a''b'

-- fail 1:1: did you mean CREATE?
CRAETE STREAM s (a INT)

-- fail 1:8: did you mean STREAM?
CREATE STRAEM s (a INT)

-- fail 3:3: did you mean QUERIES?
SHOW STREAMS;
SHOW
  QUERYS

-- fail 1:8: CREATE TABLE is not supported
CREATE TABLE t (a INT)

-- fail 1:15: keyword SELECT
CREATE STREAM SELECT (a INT)

-- fail 1:15: has no dot
CREATE STREAM a.b (a INT)

-- fail 2:4: type foo is not known
CREATE STREAM s (a INT,
 b foo)

-- fail 1:20: is out of range
CREATE STREAM s (a DECIMAL(50, 2))

-- fail 1:24: unexpected NOT after the type
CREATE STREAM s (a INT NOT NULL)

-- fail 1:18: column a has no type
CREATE STREAM s (a)

-- fail 1:25: column A is given twice
CREATE STREAM s (a INT, A STRING)

-- fail 1:18: expected a column before the comma
CREATE STREAM s (, a INT)

-- fail 1:46: option path is given twice
CREATE STREAM s (a INT) WITH (path = 'a',    PATH = 'b')

-- fail 1:38: quote it: 'file'
CREATE STREAM s (a INT) WITH (source=file)

-- fail 1:25: unexpected WIHT
CREATE STREAM s (a INT) WIHT (a = 1)

-- fail: not both
CREATE STREAM s (a INT) AS SELECT a FROM t

-- fail: a derived stream has no INTO
CREATE STREAM s AS SELECT a FROM t INTO (sink = 'x')

-- fail 1:26: expected ( after INTO
SELECT a FROM s     INTO x

-- fail 1:14: unexpected b
DROP QUERY a b

-- fail: this string is not closed
SELECT 'a; FROM s

-- fail: this quoted name is not closed
SELECT `a FROM s

-- fail 1:10: this comment is not closed
SELECT a /* b /* c */ FROM s

-- fail 1:1: expected a statement, found 5
5

-- fail 1:1: WITH before SELECT is not supported
WITH x AS (SELECT a FROM s) SELECT a FROM x

-- fail 1:8: hints are not supported
SELECT /*+ BROADCAST(s) */ a FROM s
