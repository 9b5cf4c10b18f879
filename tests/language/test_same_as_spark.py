"""What penstock renders means to Spark's own parser what the user wrote.

Both texts go through Spark's expression parser; the unresolved trees must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from penstock.language import parse, render
from penstock.language.ast import BareSelect, SelectItem
from penstock.language.functions import AGGREGATES

EXPRESSIONS = r"""
a + b * c - d / e % f
(a + b) * -c
a - -5
- -a
-5
- 10L
a || 'x' || b
a div 2
a & b | c ^ ~ d
a = b = c
a = b is null
not a = b and ! c or d
a or b and not c or d and e
not not a
a < b is not null
a between b and c + 1 and d
a not between 1 and 2 or b
a between 1 and b > 2
a in (1, 2, b + 1) and c not in ('x')
(a, b) in ((1, 2), (3, 4))
a is true or b is not false or c is unknown
a is distinct from b and c is not distinct from d
a like 'x%' and b not like '!%' escape '!' or c rlike '\\d+' and d ilike 'a'
a like any ('a', 'b') or a not like all ('c', 'd')
a not like any ('c', 'd')
not a like 'x\%' or a not like '\\_%' or b like r'\%'
a like b || '%' and (a like b) = c
a like 'x' escape '\\' or a like '%%' escape '%'
startswith(a, 'x') and not startswith(lower(a), b)
a = b like 'x'
5
1.50
.5
5.
1e3
1.5e-3
-1.5D
1.5F
10L
10S
10Y
5BD
1.5E2BD
-2147483648
2147483648
-9223372036854775808
99999999999999999999
'it''s'
'it\'s'
"a""b"
'a"b'
r'\d\n'
'\u0041\t\101\0\Z\%\_\q\\'
'a' 'b'
X'1F'
date '2020-01-01' < d
timestamp '2020-01-01 00:00:00'
interval 5 minutes + ts
interval '1' day
interval '1-2' year to month
ts + interval 1 hour 30 minutes
case when a > 1 and b then c like 'x' else d end
case a when 1 then 'x' when 2 then 'y' end = 'x'
cast(a as array<int>)
cast(a as map<string, array<decimal(10, 2)>>)
a::int + 1
a::array<int> = b
try_cast(a as int)
a[0]
a[b[1] + 1].c.d
m['k']['l'] > 1
s.a.b.c
`a b`.`c``d`
named_struct('k', v).k
struct(a as x, b as y)
transform(arr, x -> x + y)
aggregate(arr, 0, (acc, x) -> acc + x, acc -> acc * k)
filter(arr, x -> x > 3 and x < lim or x is null)
exists(arr, v -> v > lim)
date_trunc(unit, ts)
timestampdiff(MINUTE, a, b)
dateadd(DAY, 1, d)
date_add(day, n)
datediff(day, d)
datediff(DAY, f(a, b), d)
trunc(d, fmt)
date(ts) = date '2020-01-01'
int(a) + double('NaN') + string(b)
substr(a, 1, 2) || substring(b, 1)
split(a, ',', 2)[0]
regexp_extract(a, '(\\d+)', 1)
from_json(a, 'x int', map('mode', 'PERMISSIVE'))
map_filter(m, (k, v) -> k > v)
zip_with(a, b, (x, y) -> (x, y, c))
`max`(a)
nvl2(a, b, c)
year(ts) * 100 + month(ts)
window(ts, '5 minutes').start
to_date(a, 'yyyy')
make_date(y, m, d)
log(2, a) + pow(a, 2) + mod(a, 3)
greatest(a, b, c, 1)
concat_ws(',', a, b)
array(1, 2)[0]
map('a', 1)['a']
h3(a, b)
extract(year from ts)
trim(both 'x' from c)
substring(a from 1 for 2)
position('a' in b)
overlay(a placing 'b' from 1)
if(a > 1, b, c)
coalesce(a, nullif(b, 0), 1)
left(a, 2) = right(b, 2)
CURRENT_DATE
current_timestamp()
count(*)
count(1)
count(distinct a, b)
sum(a * 2) filter (where b > 1 and c)
first(a, true)
any(a > 1)
any(distinct a) filter (where b)
some(a) or every(b)
100 * sum(a) / count(*)
round(avg(a), 2) > 1
percentile(a, 0.5)
percentile(a, array(0.1, 0.9))[1]
approx_percentile(a, 0.5, 100)
max_by(a, b)
collect_list(named_struct('a', a, 'b', b))
date
timestamp
end
window
`select`
a collate UTF8_LCASE = 'x'
(((a)))
((a = 1) = (b = 2)) = true
"""


@pytest.fixture(scope="module")
def spark_tree(spark: SparkSession) -> Callable[[str], str]:
    parser = spark._jsparkSession.sessionState().sqlParser()

    def tree(text: str) -> str:
        # Lambda variables carry a running number.
        shown = parser.parseExpression(text).treeString()
        return re.sub(r"#\d+\w*|_\d+", "", shown)

    return tree


@pytest.mark.parametrize("text", [t for t in EXPRESSIONS.splitlines() if t])
def test_spark_reads_the_rendering_as_the_original(
    text: str, spark_tree: Callable[[str], str]
) -> None:
    (statement,) = parse(f"SELECT {text} AS x FROM s")
    assert isinstance(statement, BareSelect)
    (item,) = statement.select.items
    assert isinstance(item, SelectItem)
    assert spark_tree(render(item.expr)) == spark_tree(text)


def test_the_aggregates_are_those_of_the_installed_spark(spark: SparkSession) -> None:
    registry = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    names, found = registry.listFunction().iterator(), set()
    while names.hasNext():
        name = names.next()
        if registry.lookupFunction(name).get().getGroup() == "agg_funcs":
            found.add(name.funcName())
    assert found <= AGGREGATES
