-- ok: all parts
-- is: SELECT max(t) FROM s [RANGE 300000000 MICROSECONDS SLIDE 60000000 MICROSECONDS WATTR ts DRATIO 1.000000%]
SELECT max(t) FROM s [RANGE 5 MINUTES SLIDE 1 MINUTE WATTR ts DRATIO 1%]

-- ok: parts in another order, on several lines, with comments that hold brackets
-- is: SELECT max(t) FROM s AS a [RANGE 500000 MICROSECONDS SLIDE 1000 MICROSECONDS WATTR a.ts DRATIO 0.500000%]
SELECT max(t) FROM s AS a [ dratio .5 % -- ]
  wattr a.ts /* ] */ slide 1 millisecond
  range 0.5 SECONDS]

-- ok: a drop ratio per source, among other parts
-- is: SELECT max(t) FROM s AS a [RANGE 60000000 MICROSECONDS WATTR ts DRATIO 1.000000% PER a.id]
SELECT max(t) FROM s a [DRATIO 1% PER a.id WATTR ts RANGE 1 MINUTE]

-- ok: a source named by any name
-- is: SELECT max(t) FROM s [RANGE 1000000 MICROSECONDS WATTR per DRATIO 1.000000% PER per], t [unbounded DRATIO 2.000000% PER a b]
SELECT max(t) FROM s [RANGE 1 SECOND WATTR per dratio 1% per per], t [DRATIO 2% PER `a b`]

-- ok: lengths as strings
-- is: SELECT a FROM s [RANGE 5400000000 MICROSECONDS SLIDE 604800000000 MICROSECONDS]
SELECT a FROM s [RANGE '1 hour 30 minutes' SLIDE '1 week']

-- ok: length without a blank
-- is: SELECT a FROM s [RANGE 5000000 MICROSECONDS]
SELECT a FROM s [RANGE 5SECONDS]

-- ok: now, unbounded, and CQL's longer spelling
-- is: SELECT a FROM s [now], t [unbounded], u [unbounded], v [unbounded WATTR ts DRATIO 2.000000%]
SELECT a FROM s [NOW], t [UNBOUNDED], u [RANGE UNBOUNDED], v [WATTR ts DRATIO 2%]

-- ok: window before the alias
-- is: SELECT a.x FROM s AS a [RANGE 1000000 MICROSECONDS], t AS b [now]
SELECT a.x FROM s [RANGE 1 SECOND] AS a, t [NOW] b

-- ok: subscripts are no windows
-- is: SELECT (a[0]), (m['RANGE'][i + 1].z) FROM s [now] WHERE (a[b[1]]) > 1
SELECT a[0], m['RANGE'][i+1].z FROM s [NOW] WHERE a[b[1]] > 1

-- ok: subscripts in the condition of a join with windows
-- is: SELECT s.x FROM s [now], t [now] WHERE (s.a[0]) = (t.a[1]) AND (s.x[RANGE]) = 2
SELECT s.x FROM s [NOW] JOIN t [NOW] ON s.a[0] = t.a[1] WHERE s.x[RANGE] = 2

-- ok: windows in strings, names and comments
-- is: SELECT 'FROM s [RANGE 1 SECOND]' AS x FROM [NOW] WHERE a = '[' AND b = ']'
SELECT 'FROM s [RANGE 1 SECOND]' AS x /* [NOW] */ FROM `[NOW]` -- [NOW
WHERE a = '[' AND b = "]"

-- ok: words of the window clause as names
-- is: SELECT range, slide, now FROM rows AS unbounded [RANGE 1000000 MICROSECONDS WATTR range]
SELECT range, slide, now FROM rows unbounded [RANGE 1 SECOND WATTR range]

-- fail 1:18: ROWS windows are not supported yet
SELECT a FROM s [ROWS 5]

-- fail 1:18: PARTITION BY windows are not supported yet
SELECT a FROM s [PARTITION BY a ROWS 5]

-- fail 2:9: SLIDE needs a RANGE
SELECT a
FROM s [SLIDE 1 MINUTE]

-- fail 1:24: RANGE must be longer than zero
SELECT a FROM s [RANGE 0 SECONDS]

-- fail 1:24: RANGE must be longer than zero
SELECT a FROM s [RANGE -1 SECONDS]

-- fail 1:24: not a whole number of milliseconds
SELECT a FROM s [RANGE 0.0005 SECONDS]

-- fail 1:24: 5 is not a length of time
SELECT a FROM s [RANGE 5]

-- fail 1:24: fortnights is not a unit of time
SELECT a FROM s [RANGE 2 fortnights]

-- fail 1:24: a month has no fixed length
SELECT a FROM s [RANGE 2 MONTHS]

-- fail 1:18: did you mean RANGE?
SELECT a FROM s [RAGNE 2 DAYS]

-- fail: RANGE needs a length
SELECT a FROM s [RANGE SLIDE 2 DAYS]

-- fail 1:33: RANGE is given twice
SELECT a FROM s [RANGE 5 MINUTE RANGE 1 HOUR]

-- fail 1:36: NOW exclude each other
SELECT a FROM s  [RANGE 5 MINUTES  NOW]

-- fail 1:25: DRATIO must lie between
SELECT a FROM s [DRATIO 0%]

-- fail 1:25: DRATIO must lie between
SELECT a FROM s [DRATIO 100%]

-- fail 1:26: DRATIO must lie between
SELECT a FROM s [DRATIO -1%]

-- fail 1:25: needs its %
SELECT a FROM s [DRATIO 0.01]

-- fail 1:33: PER needs a DRATIO before it
SELECT a FROM s [RANGE 1 MINUTE PER id]

-- fail 1:18: PER needs a DRATIO before it
SELECT a FROM s [PER id DRATIO 1%]

-- fail 2:9: PER needs a DRATIO before it
SELECT a FROM s [DRATIO 1%
  NOW   PER id]

-- fail 1:35: PER is given twice
SELECT a FROM s [DRATIO 1% PER id PER room]

-- fail 1:35: DRATIO is given twice
SELECT a FROM s [DRATIO 1% PER id DRATIO 2% PER id]

-- fail 1:31: expected a column after PER, found the end
SELECT a FROM s [DRATIO 1% PER]

-- fail 1:32: expected a column after PER, found 5
SELECT a FROM s [DRATIO 1% PER 5]

-- fail 1:28: did you mean PER?
SELECT a FROM s [DRATIO 1% PERR id]

-- fail 1:34: found ,
SELECT a FROM s [DRATIO 1% PER id, room]

-- fail 1:17: this window is empty
SELECT a FROM s []

-- fail 1:23: a stream has one window
SELECT a FROM s [NOW] [NOW]

-- fail 1:17: [ is not closed
SELECT a FROM s [RANGE 5 MINUTES

-- fail 1:33: ) without its (
SELECT a FROM s [RANGE 5 MINUTES)]

-- fail: is too long
SELECT a FROM s [RANGE 99999999999999 DAYS]
