package tidegate_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")
	indent  = regexp.MustCompile(`(?m)^[ \t]+`)
)

// Every piece of Go in the README stands in one of the examples, which are run.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	must(t, err)
	examples, err := os.ReadFile("example_test.go")
	must(t, err)
	blocks := goBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 4 {
		t.Errorf("%d pieces", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(indent.ReplaceAllString(string(examples), ""), indent.ReplaceAllString(block[1], "")) {
			t.Errorf("in no example:\n%s", block[1])
		}
	}
}
