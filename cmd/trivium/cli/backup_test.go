package cli

import "testing"

// TestBackupCommand: what the node is asked for, and what is refused before.
func TestBackupCommand(t *testing.T) {
	const made = `{"directory":"/b","node":"1","seconds":1.5,"files":3,"bytes":9,"linked_bytes":4,"damaged":[]}`
	for _, tt := range []struct {
		args []string
		body string
	}{
		{[]string{"--to", "/b"}, `{"directory":"/b","rate":33554432}`},
		{[]string{"--to", "/b", "--rate", "1MiB"}, `{"directory":"/b","rate":1048576}`},
		{[]string{"--to", "/b", "--rate", "0"}, `{"directory":"/b","rate":0}`},
	} {
		got, out, err := run(t, 200, made, "", append([]string{"backup"}, tt.args...)...)
		if err != nil || len(got) != 1 || got[0].method != "POST" || got[0].path != "/api/backup" || got[0].body != tt.body ||
			out != "node 1: 3 files, 9 bytes (4 of them linked) in /b, 1.5 s\n" {
			t.Errorf("%v: %+v %q %v", tt.args, got, out, err)
		}
	}
	for _, args := range [][]string{nil, {"--to", "b"}, {"--to", "/b", "more"}} {
		if got, _, err := run(t, 200, made, "", append([]string{"backup"}, args...)...); !isUsage(err) || len(got) > 0 {
			t.Errorf("%v: %+v %v", args, got, err)
		}
	}
}
