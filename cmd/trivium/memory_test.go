package main

import (
	"testing"
	"testing/fstest"
)

func TestAvailableMemory(t *testing.T) {
	const meminfo = "MemTotal:        8000000 kB\nMemFree:         1000 kB\n"
	const total = 8000000 * 1024
	for _, test := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing known", nil, 0},
		{"a machine", map[string]string{"proc/meminfo": meminfo}, total},
		{"version 2, in a container", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, 1 << 30},
		{"version 2, no limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/user.slice/x\n", "sys/fs/cgroup/user.slice/x/memory.max": "max\n",
		}, total},
		{"version 2, limit of a parent", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2147483648\n",
		}, 2 << 30},
		{"version 1", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "9:cpu:/a\n8:memory:/docker/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
		}, 512 << 20},
		{"version 1, no limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "8:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, total},
		{"limit above the machine's", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "99999999999999\n",
		}, total},
	} {
		root := fstest.MapFS{}
		for name, text := range test.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := availableMemory(root); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
