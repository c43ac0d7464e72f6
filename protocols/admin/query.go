package admin

import (
	"encoding/json"
	"fmt"
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
)

// page is the shape of a listing when a page was asked for.
type page struct {
	FilteredCount int `json:"filtered_count"`
	ItemCount     int `json:"item_count"`
	Items         any `json:"items"`
	Page          int `json:"page"`
	PageCount     int `json:"page_count"`
	PageSize      int `json:"page_size"`
	TotalCount    int `json:"total_count"`
}

// query applies the parameters of RabbitMQ's listings: name and use_regex,
// page and page_size, columns. Without page the whole listing is a plain array.
func query(q url.Values, list []queueInfo) (any, error) {
	total := len(list)
	list, err := named(q, list)
	if err != nil {
		return nil, err
	}
	filtered := len(list)
	if !q.Has("page") {
		return columns(q, list)
	}
	number, err := positive(q, "page", 1)
	if err != nil {
		return nil, err
	}
	size, err := positive(q, "page_size", defaultPage)
	if err != nil {
		return nil, err
	}
	size = min(size, maxPage)
	count := max(1, (filtered+size-1)/size)
	if number > count {
		return nil, fmt.Errorf("page %d of %d", number, count)
	}
	list = list[(number-1)*size : min(number*size, filtered)]
	items, err := columns(q, list)
	if err != nil {
		return nil, err
	}
	return page{
		FilteredCount: filtered, ItemCount: len(list), Items: items, Page: number, PageCount: count, PageSize: size, TotalCount: total,
	}, nil
}

// named keeps the queues whose name contains, or matches, a text.
func named(q url.Values, list []queueInfo) ([]queueInfo, error) {
	want := q.Get("name")
	if want == "" {
		return list, nil
	}
	matches := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(want)) }
	if q.Get("use_regex") == "true" {
		re, err := regexp.Compile("(?i)" + want)
		if err != nil {
			return nil, fmt.Errorf("name is no regular expression: %w", err)
		}
		matches = re.MatchString
	}
	return slices.DeleteFunc(list, func(i queueInfo) bool { return !matches(i.Name) }), nil
}

func positive(q url.Values, name string, missing int) (int, error) {
	if !q.Has(name) {
		return missing, nil
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < 1 || n > 1<<30 {
		return 0, fmt.Errorf("%s must be a positive number", name)
	}
	return n, nil
}

// columns keeps the fields named, of which a.b means field b within a.
func columns(q url.Values, list []queueInfo) (any, error) {
	if q.Get("columns") == "" {
		return list, nil
	}
	out := make([]map[string]any, 0, len(list))
	for i := range list {
		b, err := json.Marshal(&list[i])
		if err != nil {
			return nil, fmt.Errorf("describe queue: %w", err)
		}
		var all map[string]any
		if err := json.Unmarshal(b, &all); err != nil {
			return nil, fmt.Errorf("describe queue: %w", err)
		}
		some := map[string]any{}
		for _, name := range strings.Split(q.Get("columns"), ",") {
			pick(some, all, strings.Split(name, "."))
		}
		out = append(out, some)
	}
	return out, nil
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
