package conformance_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const root = "../../.."

// harness is the process with router, workers and proxy.
type harness struct {
	Target  string
	Control string
}

// startHarness runs it until the test ends.
func startHarness(t *testing.T) *harness {
	python, err := filepath.Abs(filepath.Join(root, ".venv/bin/python"))
	if chosen := os.Getenv("TIDEGATE_PYTHON"); chosen != "" {
		python = chosen
	} else if _, missing := os.Stat(python); err != nil || missing != nil {
		t.Skip("SKIPPED: conformance needs the router; run `make install`, or set TIDEGATE_PYTHON")
	}
	command := exec.CommandContext(t.Context(), python, "-m", "tests.conformance.serve")
	command.Dir = root
	command.Env = append(os.Environ(), "PYTHONPATH=tests/bench/triton:clients/python:.")
	input, err := command.StdinPipe()
	must(t, err)
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	t.Cleanup(func() {
		input.Close()
		command.Wait()
	})
	line, err := bufio.NewReader(output).ReadBytes('\n')
	must(t, err)
	h := &harness{}
	must(t, json.Unmarshal(line, h))
	return h
}

// post asks the control endpoint.
func (h *harness) post(path string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	response, err := http.Post(h.Control+path, "application/json", bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func loadCases(t *testing.T) []testCase {
	data, err := os.ReadFile(filepath.Join(root, "tests/conformance/cases.json"))
	must(t, err)
	var cases []testCase
	must(t, json.Unmarshal(data, &cases))
	return cases
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
