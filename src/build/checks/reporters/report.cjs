// Reports the end of node's test files and the tests of jest to the orchestrator, on a socket that the check was started
// with. node loads this before anything of the workspace. A runner that cannot be watched runs all the same.
'use strict';
(() => {
  const number = process.env.TEST_REPORT_FD;
  if (!/^[0-9]+$/.test(number || '') || !require('worker_threads').isMainThread) return;
  const { readSync, writeSync } = require('fs');
  const fd = Number(number);
  let token;

  const say = (text) => {
    try {
      if (token === undefined) {
        token = '';
        writeSync(fd, 'hello');
        const answer = Buffer.alloc(64);
        token = answer.toString('latin1', 0, readSync(fd, answer, 0, 64, null));
      }
      if (token) writeSync(fd, Buffer.from(`${token} ${text}`).subarray(0, 4000));
    } catch {
      // Without the channel the output is all there is.
    }
  };

  // A file of node --test: one that leaves by process.exit has tests that nobody has seen.
  const isForced = process.execArgv.includes('--test-force-exit');
  if (/^child/.test(process.env.NODE_TEST_CONTEXT || '') && !isForced) {
    let isDone = false;
    say(`begin node ${process.argv[1] || ''}`);
    process.on('beforeExit', () => { isDone = true; });
    process.on('exit', () => { if (isDone) say('end'); });
  }

  // jest: what its own results say, when it has them all.
  const report = (results) => {
    let [executed, failed, skipped] = [0, 0, 0];
    for (const file of results.testResults || []) {
      if (file.testExecError || (file.failureMessage && !(file.testResults || []).length)) {
        say(`test error ${file.testFilePath || ''}`);
      }
      for (const test of file.testResults || []) {
        const outcome = { passed: 'passed', failed: 'failed' }[test.status] || 'skipped';
        executed += outcome === 'skipped' ? 0 : 1;
        failed += outcome === 'failed' ? 1 : 0;
        skipped += outcome === 'skipped' ? 1 : 0;
        say(`test ${outcome} ${test.fullName}`);
      }
    }
    const problem = results.wasInterrupted ? 'it was interrupted' : null;
    say(`end ${JSON.stringify({ summary: { executed, failed, skipped }, problem })}`);
  };

  const watched = (core) => {
    const runCLI = async (...words) => {
      say('begin jest');
      const result = await core.runCLI(...words);
      if (result && result.results) report(result.results);
      return result;
    };
    const properties = Object.getOwnPropertyDescriptors(core);
    properties.runCLI = { value: runCLI, enumerable: true };
    return Object.create(Object.getPrototypeOf(core), properties);
  };

  const Module = require('module');
  const load = Module._load;
  let core;
  Module._load = function (request) {
    const loaded = load.apply(this, arguments);
    if (request !== '@jest/core' || !loaded || typeof loaded.runCLI !== 'function') return loaded;
    core = core || watched(loaded);
    return core;
  };
})();
