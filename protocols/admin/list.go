package admin

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a page, which are RabbitMQ's.
const (
	defaultPage = 100
	maxPage     = 500
	maxPattern  = 1 << 10 // bytes of a regular expression
)

// listing is a list of resources as it can be asked for: filtered by name,
// sorted, in pages, with some of the columns. Rows are described one at a time,
// as they are sent, so that a long list costs little memory.
type listing[T any] struct {
	rows []T // in their default order; the listing may reorder them
	name func(*T) string
	show func(*T) any
}

// list answers with a listing: a plain array, or what RabbitMQ answers when a
// page is asked for.
func list[T any](c *call, rows []T, name func(*T) string, show func(*T) any) error {
	l := listing[T]{rows, name, show}
	q := c.r.URL.Query()
	p, err := pageOf(q)
	if err != nil {
		return err
	}
	p.total = len(l.rows)
	if err := l.filter(q); err != nil {
		return err
	}
	p.filtered = len(l.rows)
	if err := l.sort(q); err != nil {
		return err
	}
	if err := p.cut(); err != nil {
		return err
	}
	if p.asked {
		l.rows = l.rows[(p.number-1)*p.size : min(p.number*p.size, p.filtered)]
	}
	return l.send(c.w, q, p)
}

// page is which part of a listing was asked for.
type page struct {
	asked           bool
	number, size    int
	total, filtered int
	count           int
}

func pageOf(q url.Values) (page, error) {
	p := page{asked: q.Has("page"), number: 1, size: defaultPage}
	if !p.asked {
		return p, nil
	}
	var err error
	if p.number, err = strconv.Atoi(q.Get("page")); err != nil {
		return p, badRequest("Pagination parameters are invalid")
	}
	if q.Has("page_size") {
		if p.size, err = strconv.Atoi(q.Get("page_size")); err != nil {
			return p, badRequest("Pagination parameters are invalid")
		}
	}
	if p.number < 1 || p.number > 1<<30 || p.size < 1 || p.size > maxPage {
		return p, &refusal{http.StatusBadRequest, "invalid_pagination_parameters",
			fmt.Sprintf("Invalid pagination parameters: page number %d, page size %d", p.number, p.size)}
	}
	return p, nil
}

// cut counts the pages.
func (p *page) cut() error {
	p.count = max(1, (p.filtered+p.size-1)/p.size)
	if p.asked && p.number > p.count {
		return &refusal{http.StatusBadRequest, "page_out_of_range",
			fmt.Sprintf("Page out of range, page: %d page size: %d, len: %d", p.number, p.size, p.filtered)}
	}
	return nil
}

// filter keeps the rows whose name contains, or matches, a text.
func (l *listing[T]) filter(q url.Values) error {
	want := q.Get("name")
	if want == "" {
		return nil
	}
	matches := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(want)) }
	if q.Get("use_regex") == "true" {
		if len(want) > maxPattern {
			return badRequest("name is too long")
		}
		re, err := regexp.Compile("(?i)" + want)
		if err != nil {
			return badRequest("name is no regular expression")
		}
		matches = re.MatchString
	}
	l.rows = slices.DeleteFunc(l.rows, func(r T) bool { return !matches(l.name(&r)) })
	return nil
}

// sort orders the rows by a column, of which a.b means field b within a.
func (l *listing[T]) sort(q url.Values) error {
	column := q.Get("sort")
	if column != "" {
		path := strings.Split(column, ".")
		keys := make([]sortKey, len(l.rows))
		var buf bytes.Buffer
		for i := range l.rows {
			keys[i].row = i
			v, err := object(&buf, l.show(&l.rows[i]))
			if err != nil {
				return err
			}
			keys[i].set(lookup(v, path))
		}
		slices.SortStableFunc(keys, sortKey.compare)
		sorted := make([]T, len(keys))
		for i := range keys {
			sorted[i] = l.rows[keys[i].row]
		}
		l.rows = sorted
	}
	if q.Get("sort_reverse") == "true" {
		slices.Reverse(l.rows)
	}
	return nil
}

// sortKey is what a row is sorted by: nothing before numbers before texts.
type sortKey struct {
	row    int
	class  int
	number float64
	text   string
}

func (k *sortKey) set(v any) {
	switch v := v.(type) {
	case float64:
		k.class, k.number = 1, v
	case bool:
		if k.class = 1; v {
			k.number = 1
		}
	case string:
		k.class, k.text = 2, v
	}
}

func (k sortKey) compare(o sortKey) int {
	return cmp.Or(cmp.Compare(k.class, o.class), cmp.Compare(k.number, o.number), cmp.Compare(k.text, o.text))
}

// send writes the rows.
func (l *listing[T]) send(to http.ResponseWriter, q url.Values, p page) error {
	var columns [][]string
	if names := q.Get("columns"); names != "" {
		for _, name := range strings.Split(names, ",") {
			columns = append(columns, strings.Split(name, "."))
		}
	}
	header(to)
	w := bufio.NewWriterSize(to, 32<<10)
	if p.asked {
		fmt.Fprintf(w, `{"filtered_count":%d,"item_count":%d,"items":`, p.filtered, len(l.rows))
	}
	w.WriteByte('[')
	var buf bytes.Buffer
	for i := range l.rows {
		if i > 0 {
			w.WriteByte(',')
		}
		row, err := some(&buf, l.show(&l.rows[i]), columns)
		if err != nil {
			return err
		}
		if _, err := w.Write(row); err != nil {
			return nil // the peer has gone
		}
	}
	w.WriteByte(']')
	if p.asked {
		fmt.Fprintf(w, `,"page":%d,"page_count":%d,"page_size":%d,"total_count":%d}`, p.number, p.count, p.size, p.total)
	}
	_ = w.Flush() // the peer has gone
	return nil
}

// some is a row in JSON, with the given columns only unless there are none. It
// is valid until buf is used again.
func some(buf *bytes.Buffer, row any, columns [][]string) ([]byte, error) {
	if columns == nil {
		buf.Reset()
		if err := json.NewEncoder(buf).Encode(row); err != nil {
			return nil, fmt.Errorf("describe a resource: %w", err)
		}
		return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
	}
	all, err := object(buf, row)
	if err != nil {
		return nil, err
	}
	kept := map[string]any{}
	for _, path := range columns {
		pick(kept, all, path)
	}
	return some(buf, kept, nil)
}

// object is a row as a map.
func object(buf *bytes.Buffer, row any) (map[string]any, error) {
	b, err := some(buf, row, nil)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("describe a resource: %w", err)
	}
	return all, nil
}

func lookup(v any, path []string) any {
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

func pick(to, from map[string]any, path []string) {
	v, ok := from[path[0]]
	if !ok {
		return
	}
	if len(path) == 1 {
		to[path[0]] = v
		return
	}
	inner, ok := v.(map[string]any)
	if !ok {
		return
	}
	sub, ok := to[path[0]].(map[string]any)
	if !ok {
		sub = map[string]any{}
		to[path[0]] = sub
	}
	pick(sub, inner, path[1:])
}

// one answers with a single resource, with some of its columns if asked.
func one(c *call, row any) error {
	var columns [][]string
	if names := c.r.URL.Query().Get("columns"); names != "" {
		for _, name := range strings.Split(names, ",") {
			columns = append(columns, strings.Split(name, "."))
		}
	}
	var buf bytes.Buffer
	b, err := some(&buf, row, columns)
	if err != nil {
		return err
	}
	header(c.w)
	_, _ = c.w.Write(b) // the peer has gone
	return nil
}
